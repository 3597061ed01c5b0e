//! One connection to a server, which is one generation of deliveries. async-nats would reconnect within its client, and what was
//! queued for the old connection would go out on the new one, where a stream may have been made anew and the number be
//! another message's. So it is kept from that, and a source is opened on a new client instead.

use std::error::Error as _;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_nats::client::Request;
use async_nats::jetstream::{Context, context};
use async_nats::{Client, ConnectErrorKind, Event, HeaderMap, Message, RequestErrorKind, ServerError};
use bytes::Bytes;
use tokio::sync::watch;
use tokio::time::timeout;

use super::address::{Address, Credentials};
use super::error::NatsError;

/// How long a server may take to let a client in.
const GREETING: Duration = Duration::from_secs(5);

/// How often a server is asked whether it is there. One that doesn't answer twice isn't.
const PING_EVERY: Duration = Duration::from_secs(10);

/// How long an answer of JetStream's may take.
pub(super) const ANSWER: Duration = Duration::from_secs(5);

/// Where a client is sent that would reconnect: nobody listens there, and a refusal is immediate.
const NOWHERE: &str = "nats://127.0.0.1:0";

/// What may come to a source beside its messages before it is read.
const WORDS: usize = 1_024;

/// Whom to connect to, and as whom.
#[derive(Clone, Debug)]
pub(super) struct Login {
    pub(super) address: Address,
    pub(super) credentials: Credentials,
    pub(super) name: Arc<str>,
    pub(super) roots: Option<std::path::PathBuf>,
}

/// A connection. Its clones are the same one; it is closed with the last.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    pub(super) client: Client,
    pub(super) jetstream: Context,
    state: Arc<State>,
}

#[derive(Debug, Default)]
struct State {
    ended: watch::Sender<Option<End>>,
    /// What the server last refused. It says so beside the request.
    refusal: Mutex<Option<String>>,
}

/// Why a connection has ended, or is taken for ended.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Lost,
    Given(String),
}

impl Login {
    /// Connects to any of the servers, for a source that has so many messages here at once.
    pub(super) async fn connect(&self, in_flight: usize) -> Result<Connection, NatsError> {
        let servers = &self.address.servers;
        let state = Arc::<State>::default();
        let mut options = async_nats::ConnectOptions::new()
            .name(&self.name)
            .ping_interval(PING_EVERY)
            .connection_timeout(GREETING)
            .request_timeout(None)
            .subscription_capacity(in_flight.saturating_add(WORDS))
            .ignore_discovered_servers()
            // As many attempts as the first connection takes; on the way to nowhere they are over at once.
            .max_reconnects(servers.len())
            .event_callback({
                let state = Arc::clone(&state);
                move |event| {
                    state.hear(event);
                    std::future::ready(())
                }
            });
        if let Some(roots) = &self.roots {
            options = options.add_root_certificates(roots.clone());
        }
        let options = self.credentials.log_in(options).await?;
        let client = options.connect(&servers[..]).await.map_err(|error| self.refused(&error))?;
        let connection = Connection {
            jetstream: context::ContextBuilder::new().timeout(ANSWER).build(client.clone()),
            client,
            state,
        };
        connection.client.set_server_pool(NOWHERE).await.map_err(|_| connection.why())?;
        let version = connection.client.server_info().version;
        // Before 2.9 a consumer has no name in its own request, and a pull no heartbeat.
        if is_older(&version, (2, 9)) { Err(NatsError::TooOld(version)) } else { Ok(connection) }
    }

    fn refused(&self, error: &async_nats::ConnectError) -> NatsError {
        match error.kind() {
            ConnectErrorKind::Authentication => NatsError::Credentials(error.to_string()),
            ConnectErrorKind::AuthorizationViolation => NatsError::Denied(error.to_string()),
            ConnectErrorKind::Tls => NatsError::Tls(error.to_string()),
            _ if is_of_tls(error) => NatsError::Tls(error.to_string()),
            _ => NatsError::Connect { at: self.address.to_string(), why: error.to_string() },
        }
    }
}

impl Connection {
    /// Why the connection has ended, or is taken for ended.
    pub(super) fn why(&self) -> NatsError {
        NatsError::Ended(match &*self.state.ended.borrow() {
            Some(End::Given(why)) => why.clone(),
            Some(End::Lost) => "it was lost".to_owned(),
            None => "it is closed".to_owned(),
        })
    }

    pub(super) fn is_over(&self) -> bool {
        self.state.ended.borrow().is_some()
    }

    /// Whether it broke, rather than was given up here.
    pub(super) fn was_lost(&self) -> bool {
        *self.state.ended.borrow() == Some(End::Lost)
    }

    /// Waits for the end of the connection.
    pub(super) async fn over(&self) -> NatsError {
        // The sender is here, so that waiting can't fail.
        let _ = self.state.ended.subscribe().wait_for(Option::is_some).await;
        self.why()
    }

    /// The client's task is gone, whatever it has said.
    pub(super) fn lost(&self) {
        self.state.end(End::Lost);
    }

    /// Ends the connection: nothing that is begun later reaches the server.
    pub(super) async fn end(&self, why: String) {
        self.state.end(End::Given(why));
        // The client's only way to close while others hold it; where it would reconnect to nobody listens.
        let _ = timeout(GREETING, self.client.force_reconnect()).await;
    }

    /// Asks, and waits for the reply as long as the caller does.
    pub(super) async fn request(&self, subject: &str, headers: HeaderMap, body: Bytes) -> Result<Message, NatsError> {
        if self.is_over() {
            return Err(self.why());
        }
        let request = Request::new().headers(headers).payload(body).timeout(None);
        let answer = self.client.send_request(subject.to_owned(), request).await;
        answer.map_err(|error| match error.kind() {
            RequestErrorKind::NoResponders => NatsError::NoResponders(subject.to_owned()),
            RequestErrorKind::TimedOut => NatsError::silence(subject, ANSWER),
            RequestErrorKind::InvalidSubject | RequestErrorKind::MaxPayloadExceeded => {
                NatsError::Message(error.to_string())
            }
            RequestErrorKind::Other => self.why(),
        })
    }

    /// The same, for so long and no longer.
    pub(super) async fn ask(
        &self,
        subject: &str,
        body: impl Into<Bytes>,
        limit: Duration,
    ) -> Result<Message, NatsError> {
        let reply = timeout(limit, self.request(subject, HeaderMap::new(), body.into())).await;
        reply.unwrap_or_else(|_| Err(self.silent(subject, limit)))
    }

    /// Why an answer didn't come in time: what isn't allowed is heard of beside the request.
    pub(super) fn silent(&self, what: &str, limit: Duration) -> NatsError {
        match self.state.refusal().take() {
            Some(refusal) => NatsError::Denied(refusal),
            None => NatsError::silence(what, limit),
        }
    }

    /// Lets the server hand out a message again at once, if it is one of a stream.
    pub(super) async fn give_back(&self, message: &Message) {
        if let Some(reply) = message.reply.as_ref().filter(|reply| reply.starts_with("$JS.ACK."))
            && !self.is_over()
        {
            // An error says that the connection is gone, and with it the delivery.
            let _ = self.client.publish(reply.clone(), Bytes::from_static(b"-NAK")).await;
        }
    }
}

impl State {
    fn end(&self, end: End) {
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some(end);
            }
            first
        });
    }

    fn refusal(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.refusal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hear(&self, event: Event) {
        match event {
            Event::Disconnected | Event::Closed => self.end(End::Lost),
            Event::LameDuckMode => self.end(End::Given("the server goes down".to_owned())),
            Event::ServerError(ServerError::Other(refusal)) => {
                tracing::warn!(%refusal, "the NATS server complains");
                *self.refusal() = Some(refusal);
            }
            _ => {}
        }
    }
}

/// Whether the handshake has failed, which comes as an error of input and output.
fn is_of_tls(error: &async_nats::ConnectError) -> bool {
    let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
    io.and_then(io::Error::get_ref).is_some_and(<dyn std::error::Error + Send + Sync>::is::<async_nats::rustls::Error>)
}

/// Whether a version's first two numbers are below these. One that can't be read counts as current.
fn is_older(version: &str, least: (u32, u32)) -> bool {
    let mut parts = version.trim_start_matches('v').split('.').map(str::parse);
    matches!((parts.next(), parts.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_compared_by_number() {
        assert!(is_older("2.8.4", (2, 9)) && is_older("v1.99", (2, 9)));
        assert!(!["2.9.10", "2.10.0", "v3.0", "2.15.1-beta", "main"].iter().any(|version| is_older(version, (2, 9))));
    }
}
