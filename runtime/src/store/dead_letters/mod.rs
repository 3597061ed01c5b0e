//! Dead letters: messages that won't be tried again unless somebody says so, with their exact bytes.

mod operate;
mod redrive;
mod write;

use std::fmt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;

pub use operate::DeadLetters;
pub(crate) use redrive::Redriven;
pub(crate) use write::{LetterIdentity, NewLetter, key_identity};

use super::registry::ConsumerId;
use super::{Row, Value, clock};
use crate::error::Error;
use crate::key::Key;
use crate::message::Headers;

/// The number of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LetterId(i64);

impl LetterId {
    /// A number as an operator read it from a log or a list.
    pub const fn new(id: i64) -> Self {
        Self(id)
    }

    /// The number.
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for LetterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<LetterId> for Value {
    fn from(id: LetterId) -> Self {
        Self::Int(id.0)
    }
}

macro_rules! stable_text {
    ($(#[$docs:meta])* $name:ident { $($(#[$variant_docs:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$docs])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name { $($(#[$variant_docs])* $variant,)* }

        impl $name {
            /// The text that the table holds and that metrics are labelled with; it never changes.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            pub(crate) fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some(Self::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

stable_text! {
    /// Why a message became a dead letter.
    Reason {
        /// Its bytes aren't a message of the handler's type.
        Undecodable = "undecodable",
        /// It has no usable key.
        BadKey = "bad_key",
        /// The body said that no retry can help.
        Permanent = "permanent",
        /// The body failed as often as it may.
        AttemptsExhausted = "attempts_exhausted",
        /// It is older than the window in which a duplicate would be noticed.
        TooOld = "too_old",
        /// It ended the process as often as it may.
        Poison = "poison",
        /// No handler takes its type.
        UnknownType = "unknown_type",
        /// Its key was committed with another payload.
        KeyConflict = "key_conflict",
    }
}

stable_text! {
    /// What becomes of a dead letter.
    LetterState {
        /// It waits for somebody to look at it.
        Open = "open",
        /// It will be handled again from the table.
        Redrive = "redrive",
        /// Its message has been handled since.
        Done = "done",
        /// Somebody decided that it needn't be handled.
        Discarded = "discarded",
    }
}

/// A dead letter as an operator sees it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Its number.
    pub id: LetterId,
    /// The consumer that it was for, as `service/handler`.
    pub consumer: String,
    /// The message's key, if it had one.
    pub key: Option<Key>,
    /// The source it came from.
    pub source: String,
    /// The exact bytes.
    pub body: Bytes,
    /// The headers.
    pub headers: Headers,
    /// Why it is here.
    pub reason: Reason,
    /// The last error's text.
    pub error: String,
    /// The attempts that it had.
    pub attempts: u32,
    /// What becomes of it.
    pub state: LetterState,
    /// When the broker took the message, by the broker's clock.
    pub sent_at: Option<SystemTime>,
    /// When it first became a dead letter, by the database's clock.
    pub first_at: SystemTime,
    /// When it was last changed, by the database's clock.
    pub updated_at: SystemTime,
}

/// Which dead letters to list. The default is the first hundred of any kind.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Of this consumer, as `service/handler`.
    pub consumer: Option<String>,
    /// For this reason.
    pub reason: Option<Reason>,
    /// In this state.
    pub state: Option<LetterState>,
    /// Not changed for at least so long.
    pub older_than: Option<Duration>,
    /// At most so many, the oldest first.
    pub limit: u32,
}

impl Default for Filter {
    fn default() -> Self {
        Self { consumer: None, reason: None, state: None, older_than: None, limit: 100 }
    }
}

/// Why a dead letter couldn't be changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeadLetterError {
    /// There is no such letter.
    #[error("there is no dead letter {0}: it was pruned, or never was; `list` shows those there are")]
    Unknown(LetterId),
    /// The row by which a duplicate would be noticed may be gone.
    #[error(
        "dead letter {0} is older than the window in which a duplicate is noticed, so its message may have been handled \
         before; make sure that it wasn't, then call `redrive_forced({0})`"
    )]
    TooOld(LetterId),
    /// A statement failed.
    #[error("the dead letters can't be read or written: {0}")]
    Database(Error),
}

impl From<Error> for DeadLetterError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl DeadLetter {
    /// The columns of [`DeadLetter::from_row`], after `SELECT`.
    const COLUMNS: &'static str = "letter.id, letter.consumer, \
        (SELECT consumer.name FROM {consumers} AS consumer WHERE consumer.id = letter.consumer), letter.{key_text}, letter.source, \
        letter.body, letter.headers, letter.reason, letter.error, letter.attempts, letter.state, letter.sent_at, \
        letter.first_at, letter.updated_at \
        FROM {dead_letters} AS letter";

    fn from_row(row: &Row) -> Result<(ConsumerId, Self), sqlx::Error> {
        let unreadable = |error: Box<dyn std::error::Error + Send + Sync>| sqlx::Error::Decode(error);
        let letter = Self {
            id: LetterId(row.int(0)?),
            consumer: row.optional(2, Row::text)?.unwrap_or_default().to_owned(),
            key: row.optional(3, Row::text)?.map(Key::parse).transpose().map_err(|error| unreadable(error.into()))?,
            source: row.text(4)?.to_owned(),
            body: Bytes::copy_from_slice(row.blob(5)?),
            headers: serde_json::from_slice(row.blob(6)?).map_err(|error| unreadable(error.into()))?,
            reason: Reason::parse(row.text(7)?).ok_or_else(|| unreadable("unknown reason of a dead letter".into()))?,
            error: row.text(8)?.to_owned(),
            attempts: row.count(9)?,
            state: LetterState::parse(row.text(10)?)
                .ok_or_else(|| unreadable("unknown state of a dead letter".into()))?,
            sent_at: row.optional(11, Row::int)?.map(clock::time),
            first_at: clock::time(row.int(12)?),
            updated_at: clock::time(row.int(13)?),
        };
        Ok((ConsumerId(row.int(1)?), letter))
    }
}
