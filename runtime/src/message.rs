//! A message as a broker handed it over, and as a handler sees it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::lease::LeaseWatch;

/// One message as a broker handed it over: everything but the token that settles it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Received {
    /// The source it came from, as `.handle(source, …)` names it.
    pub source: Arc<str>,
    /// The exact bytes.
    pub body: Bytes,
    /// The headers, in the broker's order.
    pub headers: Headers,
    /// When the broker took the message, by its clock, if it says so; with RabbitMQ when the message was sent, by the publisher's
    /// clock, where that set `timestamp`. Without it the message's age isn't known, and isn't checked.
    pub sent_at: Option<SystemTime>,
    /// The message's position in an ordered log, if the broker keeps one.
    pub position: Option<u64>,
    /// How often the broker has handed the message out, this time included. It also rises when a message was given
    /// back unstarted, so it never decides about a dead letter.
    pub delivery_count: u32,
    /// Whether the broker says that it has handed this message out before. A hint, never a proof.
    pub redelivered: bool,
}

impl Received {
    /// A message on its first delivery, without headers.
    ///
    /// ```
    /// use inboxed_runtime::Received;
    /// let received = Received::new("orders", r#"{"order_id":1}"#);
    /// assert_eq!(received.delivery_count, 1);
    /// ```
    pub fn new(source: impl Into<Arc<str>>, body: impl Into<Bytes>) -> Self {
        Self {
            source: source.into(),
            body: body.into(),
            headers: Headers::default(),
            sent_at: None,
            position: None,
            delivery_count: 1,
            redelivered: false,
        }
    }
}

/// A message's headers: names with their exact bytes, in the broker's order. Names are looked up without regard to case.
///
/// ```
/// use inboxed_runtime::Headers;
/// let headers = Headers::from([("Type", "OrderPlaced")]);
/// assert_eq!(headers.get("type"), Some("OrderPlaced"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Headers(Vec<(String, Bytes)>);

impl Headers {
    /// The first value under this name, if it is UTF-8.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.get_bytes(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// The first value under this name.
    pub fn get_bytes(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| &value[..])
    }

    /// Appends a header.
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<Bytes>) {
        self.0.push((name.into(), value.into()));
    }

    /// All headers, in the broker's order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_str(), &value[..]))
    }
}

impl<N: Into<String>, V: Into<Bytes>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(headers: I) -> Self {
        Self(headers.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

impl<N: Into<String>, V: Into<Bytes>, const COUNT: usize> From<[(N, V); COUNT]> for Headers {
    fn from(headers: [(N, V); COUNT]) -> Self {
        headers.into_iter().collect()
    }
}

impl From<()> for Headers {
    /// No headers.
    fn from((): ()) -> Self {
        Self::default()
    }
}

/// What a handler may ask about the delivery it handles: take it as a `&Delivery` parameter.
#[derive(Debug)]
pub struct Delivery {
    received: Arc<Received>,
    attempt: u32,
    lease: LeaseWatch,
}

impl Delivery {
    pub(crate) fn new(received: Arc<Received>, attempt: u32, lease: LeaseWatch) -> Self {
        Self { received, attempt, lease }
    }

    /// Which attempt this is: the body's recorded failures and one. Giving a message back doesn't count.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How long ago the broker took the message, by this machine's clock; `None` if the broker doesn't say.
    pub fn age(&self) -> Option<Duration> {
        self.received.sent_at.map(|sent_at| sent_at.elapsed().unwrap_or_default())
    }

    /// The source it came from.
    pub fn source(&self) -> &str {
        &self.received.source
    }

    /// The message's headers.
    pub fn headers(&self) -> &Headers {
        &self.received.headers
    }

    /// The exact bytes.
    pub fn body(&self) -> &[u8] {
        &self.received.body
    }

    /// Whether the broker says that it has handed this message out before.
    pub fn redelivered(&self) -> bool {
        self.received.redelivered
    }

    /// Whether the broker has taken the message back meanwhile. Another process may then run it too; the claim still
    /// keeps the effect single.
    pub fn lease_lost(&self) -> bool {
        self.lease.lost()
    }
}
