//! One connection to a server, which is one generation of deliveries. The client could recover a connection by itself, but then
//! an acknowledgement meant for the old one might be said on the new one, where its number is another message's. So it never
//! recovers here: a source is opened anew instead.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use lapin::options::QueueDeclareOptions;
use lapin::tcp::OwnedTLSConfig;
use lapin::types::{FieldTable, ShortString};
use lapin::{Channel, ConnectionProperties, Error, ErrorKind, Queue};
use tokio::time::timeout;

use super::address::Address;
use super::error::RabbitMqError;

/// How long a server may take to let a client in. Its threads are gone when the socket is, so that none piles up.
pub(super) const GREETING: Duration = Duration::from_secs(10);

/// After so many channels a connection is replaced, or after half of what the server allows if that is less.
const WORN: usize = 1_000;

/// How long an answer may take.
pub(super) const ANSWER: Duration = Duration::from_secs(5);

/// Whom to connect to, and as whom.
#[derive(Clone, Debug)]
pub(super) struct Login {
    pub(super) address: Address,
    pub(super) name: Arc<str>,
    pub(super) roots: Option<PathBuf>,
}

/// A connection, closed with the last who holds it: its channels keep the client's own alive, and with a consumer on one of them
/// the server would go on to push messages to nobody.
#[derive(Debug)]
pub(super) struct Connection {
    client: lapin::Connection,
    over: AtomicBool,
    /// How many channels were opened over it.
    channels: AtomicUsize,
}

impl Login {
    pub(super) async fn connect(&self) -> Result<Connection, RabbitMqError> {
        let properties = ConnectionProperties::default().with_connection_name(self.name.as_bytes().into());
        let mut tls = OwnedTLSConfig::default();
        if let Some(roots) = &self.roots {
            let read = tokio::fs::read_to_string(roots).await;
            tls.cert_chain = Some(read.map_err(|error| RabbitMqError::Tls(format!("{}: {error}", roots.display())))?);
        }
        let runtime = lapin::runtime::default_runtime()?;
        let uri = self.address.uri.clone();
        let connecting = lapin::Connection::connect_uri_with_config(uri, properties, tls, runtime);
        let at = || self.address.to_string();
        match timeout(GREETING, connecting).await {
            Ok(Ok(client)) => Ok(Connection { client, over: AtomicBool::new(false), channels: AtomicUsize::new(0) }),
            Ok(Err(error)) => Err(self.refused(error)),
            Err(_) => Err(RabbitMqError::Connect { at: at(), why: format!("no greeting within {GREETING:?}") }),
        }
    }

    fn refused(&self, error: Error) -> RabbitMqError {
        if let ErrorKind::IOError(why) = error.kind() {
            let text = why.to_string();
            let of_tls = matches!(why.kind(), std::io::ErrorKind::InvalidData | std::io::ErrorKind::Other)
                && text.to_ascii_lowercase().contains("certificate");
            return if of_tls {
                RabbitMqError::Tls(text)
            } else {
                RabbitMqError::Connect { at: self.address.to_string(), why: text }
            };
        }
        match RabbitMqError::from(error) {
            RabbitMqError::Ended(why) => RabbitMqError::Connect { at: self.address.to_string(), why },
            other => other,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.is_over() {
            // The word is on its way when this returns.
            let _ = self.client.close(200, ShortString::default()).now_or_never();
        }
    }
}

impl Connection {
    /// Whether it has ended, or is taken for ended: nothing is said on it any more.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire) || !self.client.status().connected()
    }

    /// Whether it is to be replaced: the client never again uses the number of a channel that the server has closed, and has
    /// 2,047 of them.
    pub(super) fn is_worn(&self) -> bool {
        let allowed = usize::from(self.client.configuration().channel_max());
        let worn = if allowed == 0 { WORN } else { WORN.min(allowed / 2) };
        self.channels.load(Ordering::Relaxed) >= worn
    }

    /// An error if the server takes nothing that is published, for want of memory or disk.
    pub(super) fn unless_blocked(&self) -> Result<(), RabbitMqError> {
        if self.client.status().blocked() {
            return Err(RabbitMqError::Silent("it is short of memory or disk, and takes no messages".to_owned()));
        }
        Ok(())
    }

    /// Ends the connection.
    pub(super) async fn end(&self) {
        if !self.over.swap(true, Ordering::AcqRel) {
            // A server that is gone doesn't answer to that.
            let _ = timeout(ANSWER, self.client.close(200, ShortString::default())).await;
        }
    }

    pub(super) async fn channel(&self) -> Result<Channel, RabbitMqError> {
        self.channels.fetch_add(1, Ordering::Relaxed);
        answer("channel.open", self.client.create_channel()).await
    }

    /// The queue of this name, if it is there.
    pub(super) async fn queue(&self, queue: &str) -> Result<Option<Queue>, RabbitMqError> {
        // Of a queue that isn't there the channel is closed.
        let channel = self.channel().await?;
        match look(&channel, queue).await {
            Ok(queue) => Ok(Some(queue)),
            Err(RabbitMqError::NoQueue(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The queue of this name, which must be there.
pub(super) async fn look(channel: &Channel, queue: &str) -> Result<Queue, RabbitMqError> {
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    answer("queue.declare", channel.queue_declare(name(queue)?, passive, FieldTable::default())).await
}

/// A name as the client takes it.
pub(super) fn name(name: &str) -> Result<ShortString, RabbitMqError> {
    ShortString::try_new(name).map_err(|_| RabbitMqError::Name(name.to_owned()))
}

/// Waits for an answer, but not for ever.
pub(super) async fn answer<T>(what: &str, answer: impl Future<Output = lapin::Result<T>>) -> Result<T, RabbitMqError> {
    match timeout(ANSWER, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(RabbitMqError::silence(what, ANSWER)),
    }
}
