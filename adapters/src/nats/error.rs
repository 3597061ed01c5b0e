//! What can be wrong with a server, or with a stream or durable on it.

use std::time::Duration;

use inboxed_runtime::broker::BrokerError;

/// Why NATS can't be reached or used. Inside a [`BrokerError`], which says whether waiting helps.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NatsError {
    /// The URL can't be read. It isn't repeated: it may hold a password.
    #[error("the NATS URL can't be used: {0}")]
    Url(&'static str),
    /// The credentials can't be read.
    #[error("the NATS credentials can't be used: {0}")]
    Credentials(String),
    /// No server answers there.
    #[error("no NATS server answers at {at}: {why}")]
    Connect {
        /// The servers' addresses.
        at: String,
        /// The last of them said.
        why: String,
    },
    /// The server doesn't let this client in.
    #[error("the NATS server refuses the credentials: {0}")]
    Denied(String),
    /// The connection is gone. Its deliveries come again, on a new one.
    #[error("the connection to the NATS server has ended: {0}")]
    Ended(String),
    /// The server hasn't answered in time.
    #[error("the NATS server doesn't answer: {0}")]
    Silent(String),
    /// There is nobody on the server to answer.
    #[error("`{0}` is answered by nobody on the NATS server: is JetStream on (`nats-server -js`)?")]
    NoResponders(String),
    /// The message can't be published as it is.
    #[error("the message can't be published: {0}")]
    Message(String),
    /// TLS can't be set up.
    #[error("TLS with the NATS server can't be set up: {0}")]
    Tls(String),
    /// The server is too old.
    #[error("the NATS server has version {0}, and 2.9 or later is needed")]
    TooOld(String),
    /// JetStream says no.
    #[error("JetStream refuses `{request}`: {description}")]
    JetStream {
        /// What it was asked.
        request: String,
        /// Its number for the error.
        code: u64,
        /// Its text.
        description: String,
    },
    /// There is no such stream, and it isn't to be made.
    #[error("{0}")]
    NoStream(String),
    /// A stream that is there isn't the one that would be made.
    #[error("stream `{stream}` {difference}")]
    Stream {
        /// The stream.
        stream: String,
        /// What differs, and what to do.
        difference: String,
    },
    /// A durable that is there isn't as it must be.
    #[error("durable `{durable}` of stream `{stream}` {difference}")]
    Durable {
        /// The stream.
        stream: String,
        /// The durable.
        durable: String,
        /// What differs, and what to do.
        difference: String,
    },
    /// Two places could be meant.
    #[error("{0}")]
    Ambiguous(String),
    /// The name can't be used.
    #[error("`{0}` can't be a {1} in NATS, where names have no space and none of `. * > / \\`: {2}")]
    Name(String, &'static str, &'static str),
    /// Something that isn't JetStream's protocol.
    #[error("the NATS server sent something unexpected: {0}")]
    Protocol(String),
}

impl NatsError {
    /// Nothing was heard for this long.
    pub(super) fn silence(what: &str, time: Duration) -> Self {
        Self::Silent(format!("{what}, {time:?} long"))
    }

    fn may_pass(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Ended(_) | Self::Silent(_) | Self::NoResponders(_) | Self::Protocol(_) => true,
            // 503 and the like: no leader at the moment, or not yet there after a start.
            Self::JetStream { code, .. } => matches!(code, 10_008 | 10_009 | 10_021 | 10_077),
            _ => false,
        }
    }
}

impl From<NatsError> for BrokerError {
    fn from(error: NatsError) -> Self {
        if error.may_pass() { Self::Unreachable(Box::new(error)) } else { Self::Refused(Box::new(error)) }
    }
}
