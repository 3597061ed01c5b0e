//! What an adapter brings to the suite: its broker, ready to be published to and looked into.

use std::fmt::Display;
use std::future::Future;
use std::time::{Duration, SystemTime};

use inboxed::broker::{Capabilities, Transport};

/// An adapter under test, with a broker of its own.
pub(crate) trait Adapter: Send + Sync + Sized + 'static {
    /// How it opens sources.
    type Transport: Transport;

    /// The share of messages that this broker may deliver again without a cause, from 0.
    const DUPLICATES: f64;

    /// A lease that is as short as the broker's clock makes sensible.
    const SHORT_LEASE: Duration;

    /// Whether a publisher may say when a message was sent; else the broker does.
    const DATED: bool;

    /// Whether the first consumer of a source makes what it needs; else the suite makes it before anything is published.
    const MAKES_WHEN_OPENED: bool;

    /// Whether it confirms acknowledgements. One that is only sent may die with its sender.
    const CONFIRMS: bool;

    /// What it must declare. Declaring less is a failure of the adapter.
    fn held_to() -> Capabilities;

    /// Starts or reaches a broker whose deliveries are leased for this long.
    fn start(lease: Duration) -> impl Future<Output = Self> + Send;

    /// Starts one whose server the row may stop.
    fn start_own(lease: Duration) -> impl Future<Output = Result<Self, Refused>> + Send;

    /// Connects for one group of consumers; the group `""` is there without the capability.
    fn connect(&self, group: &str) -> Result<Self::Transport, Refused>;

    /// Publishes a message, and answers when the broker has accepted it.
    fn publish(&self, source: &str, message: Outgoing) -> impl Future<Output = Result<(), Refused>> + Send;

    /// How many of a source's messages a group hasn't settled.
    fn backlog(&self, group: &str, source: &str) -> impl Future<Output = usize> + Send;

    /// Stops the broker's server.
    fn stop_server(&self) -> impl Future<Output = Result<(), Refused>> + Send;

    /// Starts it again.
    fn start_server(&self) -> impl Future<Output = Result<(), Refused>> + Send;
}

/// What an adapter can't do.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) &'static str);

/// A message to publish.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outgoing {
    pub(crate) body: Vec<u8>,
    pub(crate) headers: Vec<(&'static str, Vec<u8>)>,
    pub(crate) ordering_key: Option<String>,
    /// As of when the broker takes it; `None` is now. Only some brokers let a test say so.
    pub(crate) sent_at: Option<SystemTime>,
}

impl From<Vec<u8>> for Outgoing {
    fn from(body: Vec<u8>) -> Self {
        Self { body, ..Self::default() }
    }
}

/// What came of something that needs a capability: there if that is declared, else refused, which ends the row.
pub(crate) fn declared<T>(row: &str, capability: bool, outcome: Result<T, Refused>) -> Option<T> {
    match (capability, outcome) {
        (true, Ok(done)) => Some(done),
        (true, Err(refused)) => panic!("declared, and refused: {}", refused.0),
        (false, Ok(_)) => panic!("not declared, and not refused"),
        (false, Err(refused)) => {
            report(row, format_args!("refused: {}", refused.0));
            None
        }
    }
}

/// Prints a line of a test's report, under the test's own name: one row runs for several adapters.
pub(crate) fn report(row: &str, what: impl Display) {
    let thread = std::thread::current();
    println!("{} {what}", thread.name().unwrap_or(row));
}
