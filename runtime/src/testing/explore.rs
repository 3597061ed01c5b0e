//! The exploration of one handler.

use std::fmt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::{BoxFuture, join_all};

use super::report::{Finding, NotExact, Report};
use crate::consumer::Consumer;
use crate::deliver::Outcome;
use crate::fault::FaultPoint;
use crate::message::Headers;
use crate::run_error::RunError;
use crate::store::Store;

/// How often a message is delivered until it counts as never done.
const DELIVERIES: u32 = 20;

/// In a child process: the point to abort at and the message, `Claimed/17`.
const CHILD: &str = "INBOXED_EXPLORE_CHILD";

/// In a child process: the database of the parent.
const CHILD_DATABASE: &str = "INBOXED_EXPLORE_DATABASE";

/// A handler under exploration, by [`explore`].
pub struct Explore<Db: Store, S> {
    source: String,
    database: String,
    consumer: Box<dyn Fn(String) -> BoxFuture<'static, Consumer<Db, S>> + Send + Sync>,
    message: Box<dyn Fn(u64) -> String + Send + Sync>,
    effects: Box<dyn Fn(u64) -> BoxFuture<'static, u64> + Send + Sync>,
    key_fields: Vec<String>,
    headers: Headers,
    in_children: bool,
}

/// Explores the handler of a source: a crash at each [`FaultPoint`], a lost acknowledgement, two copies at once, a
/// redelivery after each of them, two different messages, and a message lacking each field of the key.
///
/// `consumer` builds the consumer over the database, as a new process would; it is called for every scenario. With no
/// [`Explore::effects`] that count, nothing can be found.
///
/// ```no_run
/// # use inboxed_runtime::{Consumer, store::Store};
/// # async fn example<Db: Store>(consumer: fn(String) -> std::future::Ready<Consumer<Db>>, count: fn(u64) -> std::future::Ready<u64>) {
/// let report = inboxed_runtime::testing::explore("orders", "sqlite://test.db", consumer)
///     .messages(|n| format!(r#"{{"order_id":{n},"version":1}}"#))
///     .effects(count)
///     .key_fields(["order_id", "version"])
///     .run()
///     .await
///     .unwrap();
/// assert!(report.crashes >= 8);
/// # }
/// ```
pub fn explore<Db, S, F, C>(source: impl Into<String>, database: impl Into<String>, consumer: F) -> Explore<Db, S>
where
    Db: Store,
    F: Fn(String) -> C + Send + Sync + 'static,
    C: Future<Output = Consumer<Db, S>> + Send + 'static,
{
    Explore {
        source: source.into(),
        database: database.into(),
        consumer: Box::new(move |database| Box::pin(consumer(database))),
        message: Box::new(|n| format!(r#"{{"id":{n}}}"#)),
        effects: Box::new(|_| Box::pin(std::future::ready(0))),
        key_fields: Vec::new(),
        headers: Headers::default(),
        in_children: false,
    }
}

impl<Db: Store, S: Send + Sync + 'static> Explore<Db, S> {
    /// The body of the message with this number. Different numbers are different messages.
    pub fn messages(mut self, message: impl Fn(u64) -> String + Send + Sync + 'static) -> Self {
        self.message = Box::new(message);
        self
    }

    /// Counts the effects of the message with this number, by the caller's own query.
    pub fn effects<F, C>(mut self, effects: F) -> Self
    where
        F: Fn(u64) -> C + Send + Sync + 'static,
        C: Future<Output = u64> + Send + 'static,
    {
        self.effects = Box::new(move |n| Box::pin(effects(n)));
        self
    }

    /// The top-level JSON fields that the key is made of; a message lacking one must be dead-lettered.
    pub fn key_fields<N: Into<String>>(mut self, fields: impl IntoIterator<Item = N>) -> Self {
        self.key_fields = fields.into_iter().map(Into::into).collect();
        self
    }

    /// Headers of each message.
    pub fn headers(mut self, headers: impl Into<Headers>) -> Self {
        self.headers = headers.into();
        self
    }

    /// Crashes by `abort` in a child process too: the current test runs again there, up to this call. The database must
    /// be one that another process can open by its URL.
    pub fn in_child_processes(mut self) -> Self {
        self.in_children = true;
        self
    }

    /// Explores.
    ///
    /// # Errors
    /// [`NotExact`], with every scenario in which a message had more or less than one effect.
    pub async fn run(self) -> Result<Report, NotExact> {
        if let Ok(child) = std::env::var(CHILD) {
            self.crash_here(&child).await;
        }
        let mut exploration = Exploration { explore: &self, report: Report::default(), findings: Vec::new(), next: 0 };
        for point in FaultPoint::SUCCESS {
            exploration.crash_in_process(point).await;
            if self.in_children {
                exploration.crash_child(point).await;
            }
        }
        exploration.lost_acknowledgement().await;
        exploration.copies_at_once().await;
        exploration.two_messages().await;
        exploration.lacking_fields().await;
        let Exploration { report, findings, .. } = exploration;
        if findings.is_empty() { Ok(report) } else { Err(NotExact { findings }) }
    }

    async fn consumer(&self) -> Consumer<Db, S> {
        (self.consumer)(self.database.clone()).await
    }

    async fn deliver(&self, consumer: &Consumer<Db, S>, body: String) -> Result<Outcome, RunError> {
        consumer.deliver(&self.source, body, self.headers.clone()).await
    }

    /// In the child process: delivers one message and aborts at the point.
    async fn crash_here(&self, child: &str) -> ! {
        let database = std::env::var(CHILD_DATABASE).unwrap_or_else(|_| self.database.clone());
        if let Some((point, n)) = child.split_once('/')
            && let (Some(point), Ok(n)) = (FaultPoint::by_name(point), n.parse())
        {
            let consumer = (self.consumer)(database).await;
            let consumer = consumer.on_fault_point(move |reached| {
                if reached == point {
                    std::process::abort();
                }
            });
            let _ = self.deliver(&consumer, (self.message)(n)).await;
            // The last point lies behind the outcome.
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        std::process::exit(0)
    }
}

struct Exploration<'a, Db: Store, S> {
    explore: &'a Explore<Db, S>,
    report: Report,
    findings: Vec<Finding>,
    next: u64,
}

impl<Db: Store, S: Send + Sync + 'static> Exploration<'_, Db, S> {
    /// A message that no scenario has used.
    fn new_message(&mut self) -> (u64, String) {
        self.report.scenarios += 1;
        self.next += 1;
        (self.next, (self.explore.message)(self.next))
    }

    async fn crash_in_process(&mut self, point: FaultPoint) {
        let (n, body) = self.new_message();
        let reached = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&reached);
        let consumer = self.explore.consumer().await.on_fault_point(move |at| {
            if at == point && !seen.swap(true, Ordering::SeqCst) {
                // The message's task ends here, as it would with its process.
                std::panic::resume_unwind(Box::new(point));
            }
        });
        let _ = self.explore.deliver(&consumer, body).await;
        // The last point lies behind the outcome, in a task of its own.
        for _ in 0..500 {
            if reached.load(Ordering::SeqCst) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.crashed(n, point, reached.load(Ordering::SeqCst), format!("crash at {point}")).await;
    }

    async fn crash_child(&mut self, point: FaultPoint) {
        let (n, _) = self.new_message();
        let test = std::thread::current().name().unwrap_or_default().to_owned();
        let database = self.explore.database.clone();
        let child = tokio::task::spawn_blocking(move || {
            Command::new(std::env::current_exe()?)
                .args(["--exact", &test, "--nocapture", "--include-ignored"])
                .env(CHILD, format!("{point}/{n}"))
                .env(CHILD_DATABASE, database)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
        });
        let aborted = matches!(child.await, Ok(Ok(status)) if status.code().is_none());
        self.crashed(n, point, aborted, format!("abort at {point}")).await;
    }

    async fn crashed(&mut self, n: u64, point: FaultPoint, reached: bool, scenario: String) {
        if reached {
            self.report.crashes += 1;
        } else {
            self.findings.push(Finding::PointNotReached { point: point.name() });
        }
        self.redeliver(n, scenario).await;
    }

    async fn lost_acknowledgement(&mut self) {
        let (n, body) = self.new_message();
        let consumer = self.explore.consumer().await;
        let _ = self.explore.deliver(&consumer, body).await;
        self.redeliver(n, "lost acknowledgement".to_owned()).await;
    }

    async fn copies_at_once(&mut self) {
        let (n, body) = self.new_message();
        let (one, other) = (self.explore.consumer().await, self.explore.consumer().await);
        let copies = [&one, &one, &other, &other].map(|consumer| self.explore.deliver(consumer, body.clone()));
        join_all(copies).await;
        self.redeliver(n, "copies at once, in two processes".to_owned()).await;
    }

    async fn two_messages(&mut self) {
        let consumer = self.explore.consumer().await;
        for scenario in ["a message", "another message after it"] {
            let (n, body) = self.new_message();
            match self.explore.deliver(&consumer, body).await {
                Ok(Outcome::Duplicate) if (self.explore.effects)(n).await == 0 => {
                    self.findings.push(Finding::Merged { scenario: scenario.to_owned() });
                }
                _ => self.redeliver(n, scenario.to_owned()).await,
            }
        }
    }

    async fn lacking_fields(&mut self) {
        let consumer = self.explore.consumer().await;
        for field in &self.explore.key_fields {
            let (_, body) = self.new_message();
            let Ok(serde_json::Value::Object(mut fields)) = serde_json::from_str(&body) else { continue };
            fields.remove(field);
            let body = serde_json::Value::Object(fields).to_string();
            if !matches!(self.explore.deliver(&consumer, body).await, Ok(Outcome::DeadLettered)) {
                self.findings.push(Finding::FieldNotNeeded { field: field.clone() });
            }
        }
    }

    /// Delivers in a new process until the message counts as handled, once more after that, and counts.
    async fn redeliver(&mut self, n: u64, scenario: String) {
        let consumer = self.explore.consumer().await;
        let mut last = "not delivered".to_owned();
        for _ in 0..DELIVERIES {
            match self.explore.deliver(&consumer, (self.explore.message)(n)).await {
                Ok(Outcome::Done | Outcome::Duplicate) => {
                    let _ = self.explore.deliver(&consumer, (self.explore.message)(n)).await;
                    match (self.explore.effects)(n).await {
                        0 => self.findings.push(Finding::Lost { scenario }),
                        1 => {}
                        effects => self.findings.push(Finding::Doubled { scenario, effects }),
                    }
                    return;
                }
                Ok(Outcome::DeadLettered) => {
                    last = "dead-lettered".to_owned();
                    break;
                }
                Ok(Outcome::Retry(delay)) => {
                    last = format!("to be retried after {delay:?}");
                    tokio::time::sleep(delay.min(Duration::from_millis(100))).await;
                }
                Err(error) => last = error.to_string(),
            }
        }
        self.findings.push(Finding::NeverDone { scenario, last });
    }
}

impl<Db: Store, S> fmt::Debug for Explore<Db, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Explore").field("source", &self.source).finish_non_exhaustive()
    }
}
