//! The scenarios that a handler goes through, each with a message of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;

use super::child;
use super::explore::Explore;
use super::report::{Finding, NotExact, Report};
use crate::consumer::Consumer;
use crate::deliver::Outcome;
use crate::fault::FaultPoint;
use crate::store::{Filter, Store};

/// How often a message is delivered until it counts as never done.
const DELIVERIES: u32 = 20;

/// As [`DELIVERIES`], for a message that nothing was done to.
const UNDISTURBED: u32 = 3;

/// The longest wait between two deliveries, whatever the retry policy says.
const WAIT: Duration = Duration::from_millis(100);

pub(super) struct Exploration<'a, Db: Store, S> {
    explore: &'a Explore<Db, S>,
    report: Report,
    findings: Vec<Finding>,
    next: u64,
}

impl<'a, Db: Store, S: Send + Sync + 'static> Exploration<'a, Db, S> {
    pub(super) fn of(explore: &'a Explore<Db, S>) -> Self {
        Self { explore, report: Report::default(), findings: Vec::new(), next: 0 }
    }

    pub(super) async fn run(mut self) -> Result<Report, NotExact> {
        self.two_messages().await;
        // A handler that can't do so much would fail everything else for the same reason.
        if self.findings.is_empty() {
            for point in FaultPoint::SUCCESS {
                self.crash_in_process(point).await;
                if self.explore.in_children {
                    self.crash_child(point).await;
                }
            }
            self.lost_acknowledgement().await;
            self.copies_at_once().await;
            self.lacking_fields().await;
        }
        let Self { report, findings, .. } = self;
        if findings.is_empty() { Ok(report) } else { Err(NotExact { findings }) }
    }

    /// A message that no scenario has used.
    fn new_message(&mut self) -> (u64, String) {
        self.report.scenarios += 1;
        self.next += 1;
        (self.next, self.explore.message(self.next))
    }

    async fn process(&self) -> Consumer<Db, S> {
        self.explore.process(self.explore.database.clone()).await
    }

    /// Two messages that nothing is done to are two effects.
    async fn two_messages(&mut self) {
        for scenario in ["a message", "another message after it"] {
            let (n, body) = self.new_message();
            match self.explore.deliver(&self.process().await, body).await {
                Ok(Outcome::Duplicate) if self.explore.count(n).await == 0 => {
                    self.findings.push(Finding::Merged { scenario: scenario.to_owned() });
                }
                _ => self.redeliver(n, scenario.to_owned(), UNDISTURBED).await,
            }
        }
    }

    async fn crash_in_process(&mut self, point: FaultPoint) {
        let (n, body) = self.new_message();
        let reached = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&reached);
        let consumer = self.process().await.on_fault_point(move |at| {
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
        let crashed =
            if reached.load(Ordering::SeqCst) { Ok(()) } else { Err("no delivery has come by there".to_owned()) };
        self.crashed(n, point, crashed, format!("crash at {point}")).await;
    }

    async fn crash_child(&mut self, point: FaultPoint) {
        let (n, _) = self.new_message();
        let crashed = child::crash(self.explore.test.as_deref(), &self.explore.database, point, n).await;
        self.crashed(n, point, crashed, format!("abort at {point}")).await;
    }

    async fn crashed(&mut self, n: u64, point: FaultPoint, crashed: Result<(), String>, scenario: String) {
        match crashed {
            Ok(()) => self.report.crashes += 1,
            Err(why) => self.findings.push(Finding::PointNotReached { point: point.name(), why }),
        }
        self.redeliver(n, scenario, DELIVERIES).await;
    }

    async fn lost_acknowledgement(&mut self) {
        let (n, body) = self.new_message();
        let _ = self.explore.deliver(&self.process().await, body).await;
        self.redeliver(n, "lost acknowledgement".to_owned(), DELIVERIES).await;
    }

    async fn copies_at_once(&mut self) {
        let (n, body) = self.new_message();
        let (one, other) = (self.process().await, self.process().await);
        let copies = [&one, &one, &other, &other].map(|consumer| self.explore.deliver(consumer, body.clone()));
        join_all(copies).await;
        self.redeliver(n, "copies at once, in two processes".to_owned(), DELIVERIES).await;
    }

    async fn lacking_fields(&mut self) {
        let consumer = self.process().await;
        for field in &self.explore.key_fields {
            let (_, body) = self.new_message();
            let Some(lacking) = without(&body, field) else {
                self.findings.push(Finding::NoSuchField { field: field.clone() });
                continue;
            };
            if !matches!(self.explore.deliver(&consumer, lacking).await, Ok(Outcome::DeadLettered)) {
                self.findings.push(Finding::FieldNotNeeded { field: field.clone() });
            }
        }
    }

    /// Delivers in a new process until the message counts as handled, once more after that, and counts.
    async fn redeliver(&mut self, n: u64, scenario: String, deliveries: u32) {
        let consumer = self.process().await;
        let mut last = String::new();
        for _ in 0..deliveries {
            match self.explore.deliver(&consumer, self.explore.message(n)).await {
                Ok(Outcome::Done | Outcome::Duplicate) => {
                    let _ = self.explore.deliver(&consumer, self.explore.message(n)).await;
                    match self.explore.count(n).await {
                        0 => self.findings.push(Finding::Lost { scenario }),
                        1 => {}
                        effects => self.findings.push(Finding::Doubled { scenario, effects }),
                    }
                    return;
                }
                Ok(Outcome::DeadLettered) => {
                    last = last_letter(&consumer).await;
                    break;
                }
                Ok(Outcome::Skipped) => {
                    "skipped: no handler takes its type".clone_into(&mut last);
                    break;
                }
                Ok(Outcome::Retry(delay)) => {
                    last = format!("to be retried after {delay:?}");
                    tokio::time::sleep(delay.min(WAIT)).await;
                }
                Err(error) => last = error.to_string(),
            }
        }
        self.findings.push(Finding::NeverDone { scenario, last });
    }
}

/// That a message was dead-lettered, and why.
async fn last_letter<Db: Store, S>(consumer: &Consumer<Db, S>) -> String {
    let letters = consumer.inbox().dead_letters().list(Filter { limit: u32::MAX, ..Filter::default() }).await;
    let why = letters.ok().and_then(|mut letters| letters.pop()).map(|letter| letter.error);
    format!("dead-lettered: {}", why.unwrap_or_else(|| "the letter can't be read".to_owned()))
}

/// The JSON message without this field; `None` if it hasn't got it.
fn without(body: &str, field: &str) -> Option<String> {
    let mut message = serde_json::from_str::<Value>(body).ok()?;
    let (outer, name) = match field.rsplit_once('.') {
        Some((path, name)) => (message.pointer_mut(&format!("/{}", path.replace('.', "/")))?, name),
        None => (&mut message, field),
    };
    outer.as_object_mut()?.remove(name)?;
    Some(message.to_string())
}

#[cfg(test)]
mod tests {
    use super::without;

    #[test]
    fn field_is_removed_where_it_stands() {
        assert_eq!(without(r#"{"a":1,"b":2}"#, "a").unwrap(), r#"{"b":2}"#);
        assert_eq!(without(r#"{"a":{"b":1,"c":2},"b":3}"#, "a.b").unwrap(), r#"{"a":{"c":2},"b":3}"#);
        assert_eq!(without(r#"{"a":{"b":{"c":1}}}"#, "a.b.c").unwrap(), r#"{"a":{"b":{}}}"#);
        for (body, field) in [(r#"{"a":1}"#, "b"), (r#"{"a":1}"#, "a.b"), ("[1]", "a"), ("not json", "a")] {
            assert_eq!(without(body, field), None, "{body} {field}");
        }
    }
}
