//! What can be wrong with a server, or with a queue or exchange on it.

use std::time::Duration;

use inboxed_runtime::broker::BrokerError;
use lapin::ErrorKind;

/// Why RabbitMQ can't be reached or used. Inside a [`BrokerError`], which says whether waiting helps.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RabbitMqError {
    /// The URL can't be read. It isn't repeated: it may hold a password.
    #[error("the RabbitMQ URL can't be used: {0}")]
    Url(&'static str),
    /// TLS can't be set up.
    #[error("TLS with the RabbitMQ server can't be set up: {0}")]
    Tls(String),
    /// No server answers there.
    #[error("no RabbitMQ server answers at {at}: {why}")]
    Connect {
        /// The server's address.
        at: String,
        /// What came instead.
        why: String,
    },
    /// The server doesn't let this user in, or not to that.
    #[error("the RabbitMQ server refuses: {0}")]
    Denied(String),
    /// The connection or the channel is gone. Its deliveries come again, on a new one.
    #[error("the connection to the RabbitMQ server has ended: {0}")]
    Ended(String),
    /// The server has taken the messages back.
    #[error(
        "the RabbitMQ server has waited longer for an acknowledgement than its `consumer_timeout` lets it, and has taken \
         back all that was unacknowledged: {0}"
    )]
    TimedOut(String),
    /// The server hasn't answered in time.
    #[error("the RabbitMQ server doesn't answer: {0}")]
    Silent(String),
    /// A queue isn't there.
    #[error("{0}")]
    NoQueue(String),
    /// Two queues could be meant.
    #[error("{0}")]
    Ambiguous(String),
    /// A queue or exchange that is there isn't as it would be made.
    #[error("{what} is there and differs from what would be made: {difference}")]
    Different {
        /// Which.
        what: String,
        /// What differs, and what to do.
        difference: String,
    },
    /// No queue takes what is published there.
    #[error(
        "no queue takes a message for {0}: make one by `create_topology` of the consumer, or bind one by hand; the message \
         isn't stored"
    )]
    Unroutable(String),
    /// The server couldn't store a message.
    #[error(
        "the RabbitMQ server hasn't stored the message for {0}: a queue is full or has no leader; publish it again"
    )]
    NotStored(String),
    /// The message can't be published as it is.
    #[error("the message can't be published: {0}")]
    Message(String),
    /// The name can't be used.
    #[error("`{0}` can't be a name in RabbitMQ, where 255 bytes are the most")]
    Name(String),
    /// A message came that the client can't read.
    #[error(
        "the RabbitMQ client can't read a message, and loses its connection over it each time: its properties or the names \
         of its headers aren't UTF-8, or it holds a field of unknown type ({0}). Take it out of the queue by hand"
    )]
    Unreadable(String),
    /// The server refuses for another reason.
    #[error("the RabbitMQ server refuses: {0}")]
    Refused(String),
}

impl RabbitMqError {
    /// Nothing was heard for this long.
    pub(super) fn silence(what: &str, time: Duration) -> Self {
        Self::Silent(format!("{what}, {time:?} long"))
    }

    fn may_pass(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::Ended(_)
            | Self::TimedOut(_)
            | Self::Silent(_)
            | Self::NotStored(_)
            | Self::Unreadable(_) => true,
            Self::Url(_)
            | Self::Tls(_)
            | Self::Denied(_)
            | Self::NoQueue(_)
            | Self::Ambiguous(_)
            | Self::Different { .. }
            | Self::Unroutable(_)
            | Self::Message(_)
            | Self::Name(_)
            | Self::Refused(_) => false,
        }
    }
}

impl From<RabbitMqError> for BrokerError {
    fn from(error: RabbitMqError) -> Self {
        if error.may_pass() { Self::Unreachable(Box::new(error)) } else { Self::Refused(Box::new(error)) }
    }
}

impl From<lapin::Error> for RabbitMqError {
    fn from(error: lapin::Error) -> Self {
        let ErrorKind::ProtocolError(said) = error.kind() else {
            return match error.kind() {
                ErrorKind::ParsingError(why) => Self::Unreadable(why.to_string()),
                _ => Self::Ended(error.to_string()),
            };
        };
        let text = said.get_message().to_string();
        match said.get_id() {
            // A queue whose node is down is as little found as one that isn't there.
            404 if text.contains("no queue") || text.contains("no exchange") => Self::NoQueue(text),
            // What the server takes for open after a cut counts for a limit of connections until it notices.
            530 if text.contains("limit") => Self::Ended(text),
            403 | 530 => Self::Denied(text),
            406 if text.contains("delivery acknowledgement on channel") => Self::TimedOut(text),
            405 | 406 => Self::Refused(text),
            _ => Self::Ended(text),
        }
    }
}
