//! Messages that async-nats can't read: a header that isn't UTF-8, or has no name, and the client ends its connection. The server
//! hands such a message out again when its lease is over, and so ends the next connection, for ever. After a connection
//! that broke under a pull, what was handed out and not acknowledged is therefore read from the stream by its number, which
//! gives the bytes as text, and what the client wouldn't have read is delivered from there.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::str::FromStr as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::stream::RawMessage;
use async_nats::{HeaderName, StatusCode};
use data_encoding::BASE64;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use inboxed_runtime::Received;
use inboxed_runtime::broker::Incoming;
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::connection::{ANSWER, Connection};
use super::error::NatsError;
use super::headers;
use super::place::Place;
use super::settler::NatsToken;

/// How many numbers are looked through after the first break. After each further one it is so many times as many, since a
/// message that comes again may be old.
const LOOK_BACK: u64 = 1_024;
const WIDER: u64 = 32;

/// How many are read at once.
const AT_ONCE: usize = 64;

/// What Go's JSON writes for bytes that aren't UTF-8.
const NOT_UTF8: char = char::REPLACEMENT_CHARACTER;

/// How often in a row the connection of each source has broken under a pull.
#[derive(Clone, Debug, Default)]
pub(super) struct Suspicions(Arc<Mutex<HashMap<String, Suspicion>>>);

/// The same of one source.
#[derive(Clone, Debug, Default)]
pub(super) struct Suspicion(Arc<Mutex<Breaks>>);

#[derive(Debug, Default)]
struct Breaks {
    in_a_row: u32,
    /// How often each message that was found has been handed out here: the server's count went down with the connection.
    handed_out: BTreeMap<u64, u32>,
}

impl Suspicions {
    pub(super) fn of(&self, source: &str) -> Suspicion {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(source.to_owned()).or_default().clone()
    }
}

impl Suspicion {
    pub(super) fn rouse(&self) {
        self.lock().in_a_row += 1;
    }

    pub(super) fn calm(&self) {
        self.lock().in_a_row = 0;
    }

    fn lock(&self) -> MutexGuard<'_, Breaks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more time that a message is handed out.
    fn count(&self, sequence: u64) -> u32 {
        let mut breaks = self.lock();
        let count = breaks.handed_out.entry(sequence).or_default();
        *count = count.saturating_add(1);
        *count
    }

    /// What is acknowledged below this number isn't handed out again.
    fn forget(&self, floor: u64) {
        self.lock().handed_out.retain(|sequence, _| *sequence > floor);
    }
}

#[derive(Debug, Deserialize)]
struct Stored {
    message: RawMessage,
}

/// Where a source's unreadable messages are looked for.
pub(super) struct Search<'a> {
    pub(super) server: &'a Connection,
    pub(super) source: &'a Arc<str>,
    pub(super) place: &'a Place,
    pub(super) lease: Duration,
    pub(super) suspicion: &'a Suspicion,
}

impl Search<'_> {
    /// The messages that broke the last connection, if any did. They are handed out to this consumer from here on.
    pub(super) async fn find(&self) -> VecDeque<Incoming<NatsToken>> {
        let breaks = self.suspicion.lock().in_a_row;
        if breaks == 0 {
            return VecDeque::new();
        }
        match self.look(LOOK_BACK.saturating_mul(WIDER.saturating_pow(breaks - 1))).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(source = %self.source, %error, "what broke the connection can't be looked for");
                VecDeque::new()
            }
        }
    }

    async fn look(&self, back: u64) -> Result<VecDeque<Incoming<NatsToken>>, NatsError> {
        let Place { stream, durable, .. } = self.place;
        let Some(info) = self.server.consumer(&stream.name, durable).await? else { return Ok(VecDeque::new()) };
        let last = info.delivered.stream_sequence;
        let first = info.ack_floor.stream_sequence.max(last.saturating_sub(back)) + 1;
        let read = stream::iter(first..=last).map(|sequence| self.read(sequence)).buffered(AT_ONCE);
        let unreadable = read.try_filter_map(async |message| Ok(message.filter(|message| self.is_unreadable(message))));
        let messages = unreadable.try_collect::<Vec<_>>().await?;
        self.suspicion.forget(info.ack_floor.stream_sequence);
        let mut found = VecDeque::new();
        for message in messages {
            tracing::warn!(source = %self.source, sequence = message.sequence, "a message has headers that NATS's client can't read");
            found.push_back(self.deliver(message, info.delivered.consumer_sequence).await?);
        }
        Ok(found)
    }

    async fn read(&self, sequence: u64) -> Result<Option<RawMessage>, NatsError> {
        let request = format!("STREAM.MSG.GET.{}", self.place.stream.name);
        match self.server.api(&request, &json!({ "seq": sequence })).await {
            Ok(Stored { message }) => Ok(Some(message)),
            Err(NatsError::JetStream { code, .. }) if code == ErrorCode::NO_MESSAGE_FOUND.0 => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn is_unreadable(&self, message: &RawMessage) -> bool {
        let headers = message.headers.as_deref().map(|headers| BASE64.decode(headers.as_bytes()));
        let subject = self.place.subject.as_deref().is_none_or(|filter| matches(filter, &message.subject));
        subject
            && (message.subject.contains(NOT_UTF8)
                || headers.is_some_and(|block| block.is_ok_and(|block| !can_read(&block))))
    }

    /// A delivery as the server made it, but for its reply subject, which went down with the connection. The server finds
    /// the message by its number in the stream; the consumer's need only be one that it has given.
    async fn deliver(&self, message: RawMessage, consumer_sequence: u64) -> Result<Incoming<NatsToken>, NatsError> {
        let decode = |text: &str| {
            let decoded = BASE64.decode(text.as_bytes());
            decoded.map_err(|error| NatsError::Protocol(format!("message {} of the stream: {error}", message.sequence)))
        };
        let sent_at = SystemTime::from(message.time);
        let nanos = sent_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
        let mut received = Received::new(Arc::clone(self.source), decode(&message.payload)?);
        received.headers = headers::raw(&decode(message.headers.as_deref().unwrap_or_default())?);
        received.sent_at = Some(sent_at);
        received.position = Some(message.sequence);
        received.delivery_count = self.suspicion.count(message.sequence);
        received.redelivered = received.delivery_count > 1;
        let Place { stream, durable, .. } = self.place;
        let reply = format!("$JS.ACK.{}.{durable}.1.{}.{consumer_sequence}.{nanos}.0", stream.name, message.sequence);
        let asked_at = Instant::now();
        self.server.ask(&reply, "+WPI", ANSWER).await?;
        Ok(Incoming { received, token: NatsToken::new(reply, asked_at + self.lease), leased_at: asked_at })
    }
}

/// Whether async-nats reads this block of headers, or ends its connection over it. As its `connection.rs` does it.
fn can_read(block: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(block) else { return false };
    let mut lines = text.lines().peekable();
    let Some(status) = lines.next().and_then(|line| line.strip_prefix("NATS/1.0")) else { return false };
    let status = status.trim().split(' ').next().unwrap_or_default();
    if !status.is_empty() && StatusCode::from_str(status).is_err() {
        return false;
    }
    while let Some(line) = lines.next() {
        if line.is_empty() {
            continue;
        }
        let Some((name, value)) = line.split_once(':') else { return false };
        let mut value = value.trim_start().to_owned();
        while let Some(more) = lines.next_if(|line| line.starts_with(char::is_whitespace)) {
            value.push_str(more);
        }
        if HeaderName::from_str(name).is_err() || value.trim_end().contains('\r') {
            return false;
        }
    }
    true
}

/// Whether a subject is among those of a filter, which may have wildcards.
fn matches(filter: &str, subject: &str) -> bool {
    let (mut filter, mut subject) = (filter.split('.'), subject.split('.'));
    loop {
        match (filter.next(), subject.next()) {
            (Some(">"), Some(_)) | (None, None) => return true,
            (Some(wanted), Some(token)) if wanted == "*" || wanted == token => {}
            _ => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_matches_as_the_server_does() {
        for (filter, subject) in [("a.b", "a.b"), ("a.*", "a.b"), ("*.b", "a.b"), ("a.>", "a.b.c"), (">", "a")] {
            assert!(matches(filter, subject), "{filter} {subject}");
        }
        for (filter, subject) in
            [("a", "a.b"), ("a.b", "a"), ("a.*", "a"), ("a.*", "a.b.c"), ("a.>", "a"), ("a.>", "b.c")]
        {
            assert!(!matches(filter, subject), "{filter} {subject}");
        }
    }
}
