//! Handlers under `explore`: one that keeps the rules, and each way of breaking them that the compiler can't see.

use std::future::{Ready, ready};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use inboxed::testing::{Explore, Finding, Report, explore};
use inboxed::{BoxError, Consumer, Decode, Delivery, Inbox, Json, Key, Received, State, idempotent, permanent};
use serde::Deserialize;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePool, SqlitePoolOptions};
use sqlx::{Sqlite, SqliteConnection};
use tempfile::TempDir;

#[derive(Clone, Deserialize)]
struct Order {
    id: i64,
}

async fn effect(connection: &mut SqliteConnection, id: i64) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO effects VALUES (?)").bind(id).execute(connection).await?;
    Ok(())
}

/// A database with a table of effects, and another file beside it.
struct Files {
    database: String,
    other: String,
    _folder: TempDir,
}

impl Files {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = |name: &str| format!("sqlite://{}", folder.path().join(name).display());
        let (database, other) = (url("shop.db"), url("other.db"));
        Inbox::<Sqlite>::connect(&database).await.unwrap().migrate().await.unwrap();
        for url in [&database, &other] {
            sqlx::raw_sql("CREATE TABLE effects (id INTEGER)").execute(&pool(url)).await.unwrap();
        }
        Self { database, other, _folder: folder }
    }
}

/// A pool beside the inbox's. It gives up soon, since here nobody will let go of the write lock.
fn pool(url: &str) -> SqlitePool {
    let options = url.parse::<SqliteConnectOptions>().unwrap().create_if_missing(true);
    SqlitePoolOptions::new().connect_lazy_with(options.busy_timeout(Duration::from_millis(20)))
}

/// Explores, counting the effects in this file.
fn exploring<S, F, C>(files: &Files, counted_in: &str, consumer: F) -> Explore<Sqlite, S>
where
    S: Send + Sync + 'static,
    F: Fn(Inbox<Sqlite>) -> C + Clone + Send + Sync + 'static,
    C: Future<Output = Consumer<Sqlite, S>> + Send + 'static,
{
    let counted_in = pool(counted_in);
    let process = move |database: String| {
        let consumer = consumer.clone();
        async move { consumer(Inbox::connect(&database).await.unwrap()).await }
    };
    explore("orders", &files.database, process).key_fields(["id"]).effects(move |n| {
        let pool = counted_in.clone();
        async move {
            let count = sqlx::query_scalar("SELECT COUNT(*) FROM effects WHERE id = ?").bind(n.cast_signed());
            count.fetch_one(&pool).await.unwrap()
        }
    })
}

/// What an exploration found, in words.
fn findings(explored: Result<Report, inboxed::testing::NotExact>) -> Vec<Finding> {
    explored.expect_err("the exploration must find something").findings
}

#[idempotent(key = "order:{id}")]
async fn exact(order: Order, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    Ok(effect(tx, order.id).await?)
}

#[tokio::test]
async fn handler_that_keeps_the_rules_is_exact_in_process_and_by_abort() {
    let files = Files::new().await;
    let consumer = |inbox| ready(Consumer::new("shop", inbox).handle("orders", exact));
    let report = exploring(&files, &files.database, consumer).in_child_processes().run().await;
    let report = report.unwrap_or_else(|found| panic!("{found}"));
    assert_eq!((report.crashes, report.scenarios), (16, 21), "eight points, each twice");
}

/// The same handler on a runtime of several threads.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn handler_that_keeps_the_rules_is_exact_on_several_threads() {
    let files = Files::new().await;
    let consumer = |inbox| ready(Consumer::new("shop", inbox).handle("orders", exact));
    let report = exploring(&files, &files.database, consumer).run().await.unwrap_or_else(|found| panic!("{found}"));
    assert_eq!(report.crashes, 8);
}

#[derive(Clone)]
struct Elsewhere(SqlitePool);

/// Claims in its transaction and writes through a pool.
#[idempotent(key = "order:{id}")]
async fn through_a_pool(
    order: Order,
    _tx: &mut SqliteConnection,
    State(pool): State<Elsewhere>,
) -> inboxed::Result<()> {
    Ok(effect(&mut *pool.0.acquire().await?, order.id).await?)
}

/// The process of that handler, with a pool to this file.
fn writing_to(url: &str) -> impl Fn(Inbox<Sqlite>) -> Ready<Consumer<Sqlite, Elsewhere>> + Clone + use<> {
    let pool = Elsewhere(pool(url));
    move |inbox| ready(Consumer::new("shop", inbox).state(pool.clone()).handle("orders", through_a_pool))
}

#[tokio::test]
async fn effect_through_a_pool_to_another_file_is_found_doubled() {
    let files = Files::new().await;
    let found = findings(exploring(&files, &files.other, writing_to(&files.other)).run().await);
    // The effect is there and the claim is not, wherever the crash lies between them.
    let doubled = |point: &str| {
        let scenario = format!("crash at {point}");
        found.contains(&Finding::Doubled { scenario, effects: 2 })
    };
    assert!(doubled("EffectDone") && doubled("BeforeCommit"), "{found:?}");
    assert!(!doubled("Claimed") && !doubled("Committed"), "{found:?}");
}

#[tokio::test]
async fn effect_through_a_pool_to_the_same_file_is_found_never_done() {
    let files = Files::new().await;
    let found = findings(exploring(&files, &files.database, writing_to(&files.database)).run().await);
    assert!(found.iter().all(|finding| matches!(finding, Finding::NeverDone { .. })), "{found:?}");
}

#[idempotent(key = "order:{id}")]
async fn refusing(order: Order, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    effect(tx, order.id).await?;
    Err(permanent("the warehouse has burnt down"))
}

#[tokio::test]
async fn handler_that_refuses_is_found_with_its_reason() {
    let files = Files::new().await;
    let consumer = |inbox| ready(Consumer::new("shop", inbox).handle("orders", refusing));
    let found = findings(exploring(&files, &files.database, consumer).run().await);
    let last = "dead-lettered: the warehouse has burnt down".to_owned();
    assert_eq!(found[0], Finding::NeverDone { scenario: "a message".to_owned(), last });
}

#[derive(Deserialize)]
struct Tenanted {
    tenant: String,
    id: i64,
}

#[idempotent(key = "tenant:{tenant}")]
async fn by_tenant(order: Tenanted, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    let _ = order.tenant;
    Ok(effect(tx, order.id).await?)
}

#[tokio::test]
async fn key_that_ignores_the_messages_identity_is_found_merging() {
    let files = Files::new().await;
    let consumer = |inbox| ready(Consumer::new("shop", inbox).handle("orders", by_tenant));
    let explored = exploring(&files, &files.database, consumer).messages(|n| format!(r#"{{"tenant":"t","id":{n}}}"#));
    let found = findings(explored.key_fields(["tenant"]).run().await);
    assert_eq!(found, [Finding::Merged { scenario: "another message after it".to_owned() }]);
}

#[derive(Deserialize)]
struct Defaulted {
    #[serde(default)]
    id: i64,
}

#[idempotent(key = "order:{id}")]
async fn defaulted(order: Defaulted, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    Ok(effect(tx, order.id).await?)
}

#[tokio::test]
async fn key_field_that_may_be_missing_is_found() {
    let files = Files::new().await;
    let consumer = |inbox| ready(Consumer::new("shop", inbox).handle("orders", defaulted));
    let found = findings(exploring(&files, &files.database, consumer).run().await);
    assert_eq!(found, [Finding::FieldNotNeeded { field: "id".to_owned() }]);
}

#[tokio::test]
async fn key_field_that_the_messages_have_not_got_is_named() {
    let files = Files::new().await;
    let consumer = |inbox| ready(Consumer::new("shop", inbox).handle("orders", exact));
    let found = findings(exploring(&files, &files.database, consumer).key_fields(["order_id"]).run().await);
    assert_eq!(found, [Finding::NoSuchField { field: "order_id".to_owned() }]);
}

/// A decoder that gives a message another identity at each delivery, as a receipt handle would.
struct Stamping;

#[derive(Clone, Deserialize)]
struct Stamped {
    order: Order,
    receipt: u64,
}

static RECEIPTS: AtomicU64 = AtomicU64::new(0);

impl Decode<Stamped> for Stamping {
    fn decode(&self, received: &Received) -> Result<Stamped, BoxError> {
        let order: Order = Json.decode(received)?;
        Ok(Stamped { order, receipt: RECEIPTS.fetch_add(1, Ordering::SeqCst) })
    }
}

#[idempotent(key = "receipt:{receipt}")]
async fn by_receipt(message: Stamped, tx: &mut SqliteConnection, _: &Key, _: &Delivery) -> inboxed::Result<()> {
    Ok(effect(tx, message.order.id).await?)
}

#[tokio::test]
async fn key_that_differs_at_each_delivery_is_found_doubling() {
    let files = Files::new().await;
    let consumer = |inbox| ready(Consumer::new("shop", inbox).handle_with("orders", by_receipt, Stamping));
    let found = findings(exploring(&files, &files.database, consumer).run().await);
    assert!(found.iter().any(|finding| matches!(finding, Finding::Doubled { .. })), "{found:?}");
}

/// The child is looked for under another name, and so ends without a crash.
#[tokio::test]
async fn child_that_does_not_crash_is_found_and_quoted() {
    let files = Files::new().await;
    let consumer = |inbox| ready(Consumer::new("shop", inbox).handle("orders", exact));
    let explored = exploring(&files, &files.database, consumer).in_child_processes().test("no_such_test");
    let found = findings(explored.run().await);
    assert_eq!(found.len(), 8, "{found:?}");
    let quoted = |finding: &Finding| {
        finding.to_string().contains("no_such_test") && finding.to_string().contains("running 0 tests")
    };
    assert!(found.iter().all(quoted), "{found:?}");
}
