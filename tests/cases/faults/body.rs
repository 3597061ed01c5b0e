//! However a body ends: by any path out of it, by a panic, by writing past its transaction.

use inboxed::broker::Source as _;
use inboxed::memory::Memory;
use inboxed::store::Reason;
use inboxed::{Delivery, Outcome, idempotent};
use serde::Deserialize;

use super::{Connection, Shop, deliver, effect, run_dry};
use crate::common::{Event, at_once, event, within};

/// Panics when it is dropped.
struct Fragile;

impl Drop for Fragile {
    fn drop(&mut self) {
        panic!("in drop");
    }
}

/// Writes the number of its attempt, and panics as its id says.
#[idempotent(key = "event:{id}")]
async fn panics(message: Event, delivery: &Delivery, tx: &mut Connection) -> inboxed::Result<()> {
    effect(tx, &format!("{} at attempt {}", message.id, delivery.attempt())).await?;
    match message.id.as_str() {
        "in the body" => panic!("in the body"),
        "in a task" => tokio::spawn(async { panic!("in a task") }).await?,
        "in drop" => drop(Fragile),
        _ => {}
    }
    Ok(())
}

#[tokio::test]
async fn x01_panic_is_rolled_back_counted_and_harms_no_neighbour() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    let app = shop.consumer().concurrency(10).retry(at_once(3)).handle("events", panics);
    for id in ["1", "2", "3", "in the body", "5", "in a task", "7", "in drop", "9", "10"] {
        broker.publish("events", event(id));
    }
    run_dry(&app, &broker, &["events"]).await;

    let neighbours = ["1", "10", "2", "3", "5", "7", "9"].map(|id| format!("{id} at attempt 1"));
    assert_eq!(shop.effects().await, neighbours);
    assert_eq!(broker.counts("events").deliveries, 7 + 3 * 3, "each panic was retried, and nothing else");
    let mut letters = shop.letters().await;
    letters.sort_by(|one, other| one.body.cmp(&other.body));
    assert_eq!(letters.len(), 3);
    for (letter, place) in letters.iter().zip(["in a task", "in drop", "in the body"]) {
        assert_eq!((letter.reason, letter.attempts), (Reason::AttemptsExhausted, 3));
        assert_eq!(letter.body, event(place));
        assert!(letter.error.contains(place) && letter.error.contains("panicked"), "{}", letter.error);
    }
    // The consumer goes on.
    assert_eq!(deliver(&app, "events", event("11")).await, Outcome::Done);
}

#[tokio::test(start_paused = true)]
async fn x01_dropped_delivery_is_never_acknowledged() {
    let broker = Memory::new();
    broker.publish("events", event("a"));
    let mut source = broker.open("events").await.unwrap();
    drop(within(source.receive(1)).await.unwrap());
    let again = within(source.receive(1)).await.unwrap().pop().unwrap();
    assert_eq!((again.received.delivery_count, broker.counts("events").acknowledged), (2, 0));
}

#[derive(Deserialize)]
struct Leaving {
    by: String,
}

/// Writes its effect, and leaves by the path that the message names.
#[idempotent(key = "leaving:{by}")]
async fn leave(message: Leaving, tx: &mut Connection) -> inboxed::Result<()> {
    effect(tx, &message.by).await?;
    if message.by == "return Ok in a branch" {
        return Ok(());
    }
    for turn in 0..3 {
        match (turn, message.by.as_str()) {
            (1, "return Ok in a loop") => return Ok(()),
            (1, "return Err in a loop") => return Err("in a loop".into()),
            _ => {}
        }
    }
    if message.by == "? on a parse error" {
        message.by.parse::<u64>()?;
    }
    if message.by == "? on an error of sqlx" {
        sqlx::query("SELECT nothing FROM nowhere").execute(&mut *tx).await?;
    }
    if message.by == "last expression Err" { Err("last".into()) } else { Ok(()) }
}

#[tokio::test]
async fn x03_every_path_out_of_a_body_commits_on_ok_and_rolls_back_on_err() {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("leaving", leave);
    let body = |by: &str| serde_json::json!({ "by": by }).to_string();
    let well = ["last expression Ok", "return Ok in a branch", "return Ok in a loop"];
    for by in well {
        assert_eq!(deliver(&app, "leaving", body(by)).await, Outcome::Done, "{by}");
    }
    let badly = ["? on a parse error", "? on an error of sqlx", "last expression Err", "return Err in a loop"];
    for by in badly {
        assert!(matches!(deliver(&app, "leaving", body(by)).await, Outcome::Retry(_)), "{by}");
    }
    assert_eq!(shop.effects().await, well);
    assert_eq!(shop.keys().await.len(), well.len(), "no claim without its effect");
    assert_eq!(shop.counted().await, 4);
}

#[idempotent(key = "event:{id}")]
async fn fails_at_first(message: Event, delivery: &Delivery, tx: &mut Connection) -> inboxed::Result<()> {
    effect(tx, &message.id).await?;
    if delivery.attempt() == 1 { Err("not yet".into()) } else { Ok(()) }
}

#[tokio::test]
async fn x07_error_after_the_claim_leaves_no_mark_that_blocks_the_retry() {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("events", fails_at_first);
    assert!(matches!(deliver(&app, "events", event("a")).await, Outcome::Retry(_)));
    assert_eq!(shop.keys().await, [""; 0]);
    assert_eq!(deliver(&app, "events", event("a")).await, Outcome::Done, "at once, with no lease to wait for");
    assert_eq!(shop.effects().await, ["a"]);
}

#[cfg(feature = "testing")]
mod with_the_test_kit {
    use inboxed::store::LetterState;
    use inboxed::testing::{FaultPoint, Finding, explore};
    use inboxed::{Consumer, Inbox, State};
    use sqlx::Pool;

    use super::super::{Db, consumer, record, scripted, sql};
    use super::*;
    use crate::common::{Script, child};

    #[tokio::test]
    async fn x07_process_killed_at_any_point_has_one_effect_at_the_next_delivery() {
        if let Some((point, database)) = child::role() {
            let point = FaultPoint::by_name(&point).unwrap();
            let app = consumer(Inbox::connect(&database).await.unwrap()).handle("events", record);
            let app = app.on_fault_point(move |reached| {
                if reached == point {
                    std::process::abort();
                }
            });
            deliver(&app, "events", event(&point.name())).await;
            return;
        }
        let shop = Shop::open().await;
        let points = [
            (FaultPoint::Keyed, Outcome::Done),
            (FaultPoint::Claimed, Outcome::Done),
            (FaultPoint::EffectDone, Outcome::Done),
            (FaultPoint::BeforeCommit, Outcome::Done),
            (FaultPoint::Committed, Outcome::Duplicate),
            (FaultPoint::BeforeAcknowledge, Outcome::Duplicate),
        ];
        for (point, outcome) in points {
            let killed = child::end(child::start(&point.name(), &shop.url())).await;
            assert!(child::killed(&killed), "{point} wasn't reached");
            let app = shop.consumer().handle("events", record);
            assert_eq!(deliver(&app, "events", event(&point.name())).await, outcome, "{point}");
            let effects = shop.effects().await;
            assert_eq!(effects.iter().filter(|effect| **effect == point.name()).count(), 1, "{point}");
        }
    }

    #[tokio::test]
    async fn x07_process_killed_anywhere_in_a_failure_neither_loses_the_message_nor_its_letter() {
        let failing = |app: Consumer<Db>| {
            app.retry(at_once(1)).state(Script::new(|_, _| Err("always".into()))).handle("events", scripted)
        };
        if let Some((point, database)) = child::role() {
            let point = FaultPoint::by_name(&point).unwrap();
            let app = failing(consumer(Inbox::connect(&database).await.unwrap())).on_fault_point(move |reached| {
                if reached == point {
                    std::process::abort();
                }
            });
            deliver(&app, "events", event(&point.name())).await;
            return;
        }
        let shop = Shop::open().await;
        let mended = shop.consumer().state(Script::new(|_, _| Ok(()))).handle("events", scripted);
        for (before, point) in FaultPoint::FAILURE.into_iter().enumerate() {
            let message = event(&point.name());
            let killed = child::end(child::start(&point.name(), &shop.url())).await;
            assert!(child::killed(&killed), "{point} wasn't reached");
            assert_eq!(shop.effects().await.len(), before, "{point}");
            let failed = deliver(&failing(shop.consumer()), "events", message.clone()).await;
            assert_eq!((failed, shop.letters().await.len()), (Outcome::DeadLettered, before + 1), "{point}");
            assert_eq!(deliver(&mended, "events", message).await, Outcome::Done, "{point}");
        }
        assert_eq!(shop.effects().await.len(), FaultPoint::FAILURE.len());
        assert!(shop.letters().await.iter().all(|letter| letter.state == LetterState::Done));
        assert_eq!(shop.counted().await, 0);
    }

    /// Writes past its transaction.
    #[idempotent(key = "event:{id}")]
    async fn past_the_transaction(
        message: Event,
        State(pool): State<Pool<Db>>,
        tx: &mut Connection,
    ) -> inboxed::Result<()> {
        sqlx::query(sql("INSERT INTO beside VALUES (?)")).bind(&message.id).execute(&pool).await?;
        Ok(sqlx::query("SELECT 1").execute(tx).await.map(drop)?)
    }

    async fn pool_beside(shop: &Shop) -> Pool<Db> {
        let pool = Pool::connect(&shop.other_url()).await.unwrap();
        sqlx::raw_sql("CREATE TABLE beside (message TEXT NOT NULL)").execute(&pool).await.unwrap();
        pool
    }

    async fn count(pool: &Pool<Db>, query: &'static str, n: u64) -> u64 {
        let count: i64 = sqlx::query_scalar(sql(query)).bind(n.to_string()).fetch_one(pool).await.unwrap();
        count.unsigned_abs()
    }

    #[tokio::test]
    async fn x08_test_kit_reports_an_effect_that_is_written_past_the_transaction() {
        let shop = Shop::open().await;
        let pool = pool_beside(&shop).await;
        let state = pool.clone();
        let app = move |database: String| {
            let state = state.clone();
            async move {
                let inbox = Inbox::<Db>::connect(&database).await.unwrap();
                Consumer::new("shop", inbox).state(state).handle("events", past_the_transaction)
            }
        };
        let effects = move |n: u64| {
            let pool = pool.clone();
            async move { count(&pool, "SELECT COUNT(*) FROM beside WHERE message = ?", n).await }
        };
        let explored = explore("events", shop.url(), app)
            .messages(|n| event(&n.to_string()))
            .effects(effects)
            .key_fields(["id"])
            .run();
        let findings = within(explored).await.unwrap_err().findings;
        assert!(!findings.is_empty());
        let doubled = |finding: &Finding| matches!(finding, Finding::Doubled { effects, .. } if *effects > 1);
        assert!(findings.iter().all(doubled), "{findings:?}");
    }

    #[tokio::test]
    async fn x08_test_kit_finds_nothing_where_the_effect_is_in_the_transaction() {
        let shop = Shop::open().await;
        let app = |database: String| async move {
            Consumer::new("shop", Inbox::<Db>::connect(&database).await.unwrap()).handle("events", record)
        };
        let pool = shop.inbox.pool().clone();
        let effects = move |n: u64| {
            let pool = pool.clone();
            async move { count(&pool, "SELECT COUNT(*) FROM effects WHERE message = ?", n).await }
        };
        let explored = explore("events", shop.url(), app).messages(|n| event(&n.to_string())).effects(effects);
        within(explored.key_fields(["id"]).run()).await.unwrap();
    }
}
