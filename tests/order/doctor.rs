//! The doctor: what is found beforehand is what a start refuses, all of it at once, unless it is allowed by name.

use std::cell::Cell;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use inboxed::broker::{BrokerError, Capabilities, Incoming, Source, Transport, Wanted};
use inboxed::memory::{Memory, MemorySettler, MemorySource, MemoryToken};
use inboxed::{Check, Consumer, Finding, Inbox, RunError, Severity, idempotent, on};
use sqlx::{Sqlite, SqliteConnection};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::common::within;
use super::support::{Order, Shop, deliver, effect, order, record, until};

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// The memory broker, under the settings of another one.
#[derive(Clone)]
struct Posing {
    memory: Memory,
    as_if: fn(&mut Capabilities),
    findings: Vec<Finding>,
    refuses: Option<&'static str>,
    /// How many times a source is lost after it is opened.
    losses: Arc<AtomicU32>,
}

impl Posing {
    fn new(as_if: fn(&mut Capabilities)) -> Self {
        Self { memory: Memory::new(), as_if, findings: Vec::new(), refuses: None, losses: Arc::default() }
    }
}

impl Transport for Posing {
    type Source = PosingSource;

    fn system(&self) -> &'static str {
        self.memory.system()
    }

    async fn open(&self, name: &str, wanted: &Wanted) -> Result<PosingSource, BrokerError> {
        if self.refuses == Some(name) {
            return Err(BrokerError::Refused(format!("there is no queue `{name}`").into()));
        }
        Ok(PosingSource(Transport::open(&self.memory, name, wanted).await?, self.clone()))
    }
}

struct PosingSource(MemorySource, Posing);

impl Source for PosingSource {
    type Settler = MemorySettler;
    type Token = MemoryToken;

    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.0.capabilities();
        (self.1.as_if)(&mut capabilities);
        capabilities
    }

    fn findings(&self) -> Vec<Finding> {
        self.1.findings.clone()
    }

    fn settler(&self) -> MemorySettler {
        self.0.settler()
    }

    async fn receive(&mut self, free: usize) -> Result<Vec<Incoming<MemoryToken>>, BrokerError> {
        let lost = self.1.losses.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |losses| losses.checked_sub(1));
        if lost.is_ok() {
            return Err(BrokerError::Unreachable("the channel was closed".into()));
        }
        self.0.receive(free).await
    }
}

/// Which checks found something, and how bad it is.
fn kinds(findings: &[Finding]) -> Vec<(Check, Severity)> {
    findings.iter().map(|finding| (finding.check, finding.severity)).collect()
}

fn errors(findings: Vec<Finding>) -> Vec<Finding> {
    findings.into_iter().filter(|finding| finding.severity == Severity::Error).collect()
}

/// What the consumer is told beforehand. A start says the same: it refuses all errors at once, and only them; each is accepted by
/// its name, and then messages are handled.
async fn checked(shop: &Shop, broker: &Posing, consumer: impl Fn() -> Consumer<Sqlite>) -> Vec<Finding> {
    let findings = consumer().check(broker).await;
    assert_eq!(consumer().check(broker).await, findings, "another order");
    for finding in &findings {
        assert!(!finding.subject.is_empty() && !finding.found.is_empty() && !finding.cure.is_empty(), "{finding:?}");
    }
    let errors = errors(findings.clone());
    if !errors.is_empty() {
        match within(consumer().run_until(broker.clone(), pending())).await {
            Err(RunError::Findings(refused)) => assert_eq!(refused, errors),
            other => panic!("not refused for {errors:?}: {other:?}"),
        }
    }
    let allowed = errors.iter().fold(consumer(), |consumer, error| consumer.allow(error.check));
    assert_eq!(
        kinds(&allowed.check(broker).await).iter().filter(|(_, severity)| *severity == Severity::Error).count(),
        0
    );
    let before = shop.effects().await;
    broker.memory.publish("orders", order(before.cast_unsigned()));
    let handled = until("the message is handled", async || shop.effects().await == before + 1);
    within(allowed.run_until(broker.clone(), handled)).await.unwrap();
    findings
}

#[tokio::test]
async fn timeout_beyond_a_lease_that_is_not_extended_is_found() {
    let shop = Shop::open().await;
    let fixed = Posing::new(|capabilities| {
        capabilities.fixed_lease = true;
        capabilities.lease = Some(Duration::from_secs(100));
    });
    let timeout = |seconds| {
        let consumer = shop.consumer().timeout(Duration::from_secs(seconds));
        consumer.handle("orders", record)
    };
    let found = checked(&shop, &fixed, || timeout(91)).await;
    assert_eq!(kinds(&found), [(Check::Lease, Severity::Error)]);
    assert_eq!(found[0].subject, "shop/record");
    assert!(found[0].found.contains("91s") && found[0].found.contains("100s"), "{}", found[0]);
    assert!(found[0].cure.contains("90s"), "{}", found[0]);
    assert_eq!(checked(&shop, &fixed, || timeout(90)).await, []);
    // Two thirds of the lease, if nothing is set.
    assert_eq!(checked(&shop, &fixed, || shop.consumer().handle("orders", record)).await, []);

    let extended = Posing::new(|capabilities| capabilities.lease = Some(Duration::from_secs(100)));
    assert_eq!(checked(&shop, &extended, || timeout(1_000)).await, []);
    let found = checked(&shop, &extended, || timeout(1_000).keep_leases(false)).await;
    assert_eq!(kinds(&found), [(Check::Lease, Severity::Warning)]);
}

#[tokio::test]
async fn limit_of_the_broker_below_the_own_attempts_is_found() {
    let shop = Shop::open().await;
    let consumer = || shop.consumer().handle("orders", record);
    // Three attempts, three redeliveries until a message is suspect, and two starts alone: twice that.
    let found = checked(&shop, &Posing::new(|its| its.delivery_limit = Some(3)), consumer).await;
    assert_eq!(kinds(&found), [(Check::DeliveryLimit, Severity::Error)]);
    assert!(found[0].found.contains("after 3 deliveries") && found[0].found.contains("3 attempts"), "{}", found[0]);
    assert!(found[0].cure.contains("to 16 or more"), "{}", found[0]);
    let found = checked(&shop, &Posing::new(|its| its.delivery_limit = Some(15)), consumer).await;
    assert_eq!(kinds(&found), [(Check::DeliveryLimit, Severity::Warning)]);
    assert_eq!(checked(&shop, &Posing::new(|its| its.delivery_limit = Some(16)), consumer).await, []);
}

#[idempotent(key = "order:{id}", retention = "1h")]
async fn forgets_soon(order: Order, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    Ok(effect(tx, order.id).await?)
}

#[tokio::test]
async fn retention_is_held_against_the_broker_and_against_the_declared_horizon() {
    let shop = Shop::open().await;
    let soon = || shop.consumer().horizon(2 * HOUR).handle("orders", forgets_soon);
    let found = checked(&shop, &Posing::new(|_| {}), soon).await;
    assert_eq!(kinds(&found), [(Check::Retention, Severity::Error); 2]);
    assert!(found.iter().all(|finding| finding.subject == "shop/forgets_soon"), "{found:?}");
    for (finding, horizon) in found.iter().zip([2 * HOUR, DAY]) {
        assert!([HOUR, horizon].iter().all(|figure| finding.found.contains(&format!("{figure:?}"))), "{finding}");
        assert!(finding.cure.contains("raise the retention"), "{finding}");
    }
    let refused = within(soon().run_until(Memory::new(), pending())).await.unwrap_err().to_string();
    assert!(refused.contains("`.allow(Check::Retention)`") && refused.contains("86400s"), "{refused}");

    // Without end, which only a declared horizon makes certain.
    let shop = Shop::open().await;
    let endless = Posing::new(|its| its.retention = None);
    let found = checked(&shop, &endless, || shop.consumer().handle("orders", record)).await;
    assert_eq!(kinds(&found), [(Check::Retention, Severity::Warning)]);
    assert!(found[0].cure.contains(".horizon("), "{}", found[0]);
    assert_eq!(checked(&shop, &endless, || shop.consumer().horizon(DAY).handle("orders", record)).await, []);
}

#[tokio::test]
async fn what_the_adapter_finds_is_told_and_can_be_allowed() {
    let shop = Shop::open().await;
    let mut broker = Posing::new(|_| {});
    broker.findings = vec![
        Finding::warning(Check::Durability, "orders", "the queue is in memory", "make it durable"),
        Finding::error(Check::DeadLetterQueue, "orders", "there is no dead-letter queue", "make one"),
    ];
    let found = checked(&shop, &broker, || shop.consumer().handle("orders", record)).await;
    assert_eq!(found, broker.findings);
}

#[tokio::test]
async fn errors_of_all_sources_are_refused_together_and_by_their_names_order() {
    let shop = Shop::open().await;
    let consumer = || shop.consumer().retention(HOUR).handle("returns", forgets_soon).handle("orders", record);
    let found = checked(&shop, &Posing::new(|its| its.delivery_limit = Some(1)), consumer).await;
    let subjects = found.iter().map(|finding| (&*finding.subject, finding.check)).collect::<Vec<_>>();
    let (retention, limit) = (Check::Retention, Check::DeliveryLimit);
    assert_eq!(
        subjects,
        [("shop/record", retention), ("orders", limit), ("shop/forgets_soon", retention), ("returns", limit)]
    );
}

#[tokio::test]
async fn allowing_one_check_allows_no_other() {
    let shop = Shop::open().await;
    let broker = Posing::new(|its| its.delivery_limit = Some(1));
    let consumer = shop.consumer().retention(HOUR).handle("orders", record).allow(Check::Retention);
    let found = consumer.check(&broker).await;
    assert_eq!(kinds(&found), [(Check::Retention, Severity::Warning), (Check::DeliveryLimit, Severity::Error)]);
    match within(consumer.run_until(broker, pending())).await {
        Err(RunError::Findings(refused)) => assert_eq!(kinds(&refused), [(Check::DeliveryLimit, Severity::Error)]),
        other => panic!("not refused: {other:?}"),
    }
    assert_eq!(shop.effects().await, 0);
}

mod renamed {
    use super::{Order, SqliteConnection, effect, idempotent};

    #[idempotent(key = "another:{id}", consumer = "record")]
    pub(super) async fn another_key(order: Order, tx: &mut SqliteConnection) -> inboxed::Result<()> {
        Ok(effect(tx, order.id).await?)
    }
}

/// What can't be allowed: the first of it is what a start says.
async fn refused(consumer: Consumer<Sqlite>, expected: &[(Check, &str)]) {
    let broker = Memory::new();
    let all = [Check::Handlers, Check::Inbox, Check::Source].into_iter().fold(consumer, Consumer::allow);
    let found = all.check(&broker).await;
    let subjects = found.iter().map(|finding| (finding.check, &*finding.subject)).collect::<Vec<_>>();
    assert_eq!(subjects, expected, "{found:?}");
    assert!(found.iter().all(|finding| finding.severity == Severity::Error && !finding.cure.is_empty()), "{found:?}");
    let refused = within(all.run_until(broker, pending())).await.unwrap_err().to_string();
    assert!(refused.contains(&found[0].found) && refused.contains(&found[0].cure), "{refused}: {}", found[0]);
}

#[tokio::test]
async fn what_no_start_gets_past_is_found_beforehand() {
    let shop = Shop::open().await;
    refused(shop.consumer(), &[(Check::Handlers, "consumer")]).await;
    let both = shop.consumer().handle("orders", record).handle("orders", renamed::another_key);
    refused(both, &[(Check::Handlers, "orders"), (Check::Handlers, "record")]).await;

    deliver(&shop.consumer().handle("orders", record), 7).await;
    refused(shop.consumer().handle("orders", renamed::another_key), &[(Check::Handlers, "shop/record")]).await;
    refused(shop.consumer().handle("elsewhere", record), &[(Check::Handlers, "shop/record")]).await;

    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("new.db").display());
    let new = Inbox::<Sqlite>::connect(&url).await.unwrap();
    refused(Consumer::new("shop", new).handle("orders", record), &[(Check::Inbox, "inbox")]).await;
    let in_memory = Inbox::<Sqlite>::connect("sqlite::memory:").await.unwrap();
    let unfit = [(Check::Inbox, "inbox"), (Check::Inbox, "inbox")];
    refused(Consumer::new("shop", in_memory).handle("orders", record), &unfit).await;
}

#[tokio::test]
async fn source_that_is_refused_is_found_with_all_else() {
    let shop = Shop::open().await;
    let mut broker = Posing::new(|its| its.delivery_limit = Some(1));
    broker.refuses = Some("returns");
    let consumer = shop.consumer().handle("orders", record).handle("returns", record);
    let found = consumer.check(&broker).await;
    assert_eq!(kinds(&found), [(Check::DeliveryLimit, Severity::Error), (Check::Source, Severity::Error)]);
    assert!(
        found[1].found.contains("no queue `returns`") && found[1].cure.contains("`create_topology`"),
        "{}",
        found[1]
    );
    let refused = within(consumer.run_until(broker, pending())).await.unwrap_err();
    assert!(matches!(&refused, RunError::Source { name, .. } if name == "returns"), "{refused}");
}

#[tokio::test]
async fn check_leaves_nothing_behind_and_a_refused_start_handles_nothing() {
    let shop = Shop::open().await;
    let consumer = shop.consumer().retention(HOUR).handle("orders", record);
    let broker = Memory::new();
    broker.publish("orders", order(1));
    assert_eq!(kinds(&consumer.check(&broker).await), [(Check::Retention, Severity::Error)]);
    assert_eq!(shop.inbox.registered().await.unwrap(), []);
    within(consumer.run_until(broker.clone(), pending())).await.unwrap_err();
    assert_eq!((broker.counts("orders").deliveries, broker.counts("orders").waiting), (0, 1));

    deliver(&shop.consumer().handle("orders", record), 7).await;
    let renamed = shop.consumer().handle(on("orders").header("type", "Placed"), forgets_soon).allow(Check::Retention);
    let found = renamed.check(&broker).await;
    assert_eq!(kinds(&found), [(Check::Handlers, Severity::Warning), (Check::Retention, Severity::Warning)]);
    assert_eq!(found[0].subject, "shop/record");
    assert!(found[0].cure.contains(r#"consumer = "record""#), "{}", found[0]);
}

thread_local! {
    /// How many warnings of the doctor were logged on this thread, which is one test's.
    static LOGGED: Cell<u32> = const { Cell::new(0) };
}

/// Counts the warnings of the doctor, for the whole process: a subscriber of one thread misses what others see first.
struct Warnings;

impl Subscriber for Warnings {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() == Level::WARN && metadata.target() == "inboxed_runtime::doctor"
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        LOGGED.set(LOGGED.get() + 1);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test]
async fn warnings_are_logged_once_however_often_the_source_is_opened() {
    let shop = Shop::open().await;
    tracing::subscriber::set_global_default(Warnings).unwrap();
    let broker = Posing::new(|its| its.retention = None);
    broker.losses.store(3, Ordering::SeqCst);
    broker.memory.publish("orders", order(1));
    let consumer = shop.consumer().handle("orders", record);
    assert_eq!(kinds(&consumer.check(&broker).await), [(Check::Retention, Severity::Warning)]);
    assert_eq!(LOGGED.get(), 0, "a check only answers");
    let handled = until("the message is handled", async || shop.effects().await == 1);
    within(consumer.run_until(broker.clone(), handled)).await.unwrap();
    assert_eq!((broker.losses.load(Ordering::SeqCst), LOGGED.get()), (0, 1));
}
