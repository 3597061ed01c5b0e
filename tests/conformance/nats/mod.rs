//! The `nats` adapter under test, on a real server: the one that `INBOXED_NATS_URL` names, or one of the test's own where the
//! server is stopped.

pub(crate) mod cuts;
pub(crate) mod limits;
pub(crate) mod login;
pub(crate) mod made_anew;
mod proxy;
pub(crate) mod publishing;
mod server;
pub(crate) mod settings;
pub(crate) mod unreadable;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use inboxed::Headers;
use inboxed::broker::Capabilities;
use inboxed::nats::{Nats, NatsError, Publisher};
use serde_json::{Value, json};
use tokio::sync::Mutex;

use self::proxy::Proxy;
use self::server::Server;
use crate::adapter::{Adapter, Outgoing, Refused};
use crate::services::{Own, shared};
use crate::trial::{SERVICE, Trial};

const RETENTION: Duration = Duration::from_hours(24);

/// A NATS server, and the streams that a trial has on it. `ORDERED` hands out one message at a time.
pub(crate) struct JetStream<const ORDERED: bool> {
    server: Server,
    own: Option<Own>,
    nats: Nats,
    publisher: Mutex<Option<Arc<Publisher>>>,
    streams: std::sync::Mutex<BTreeSet<String>>,
}

/// One that hands out many messages at a time.
type Plain = JetStream<false>;

type OnNats = Trial<Plain>;

impl<const ORDERED: bool> JetStream<ORDERED> {
    fn on(url: String, own: Option<Own>, lease: Duration) -> Self {
        let nats = Nats::new(&url).unwrap().ack_wait(lease).max_age(RETENTION);
        let nats = if ORDERED { nats.one_at_a_time() } else { nats };
        Self { server: Server { url }, own, nats, publisher: Mutex::default(), streams: std::sync::Mutex::default() }
    }

    /// Makes a source's stream as its first consumer would.
    async fn create(&self, source: &str) {
        let age = nanos(RETENTION);
        let config =
            json!({ "name": source, "subjects": [source], "storage": "file", "retention": "limits", "max_age": age });
        self.server.ask_soon(format!("STREAM.CREATE.{source}"), config).await;
    }

    /// The shared server, with a transport set up so.
    async fn with(lease: Duration, set_up: impl FnOnce(Nats) -> Nats) -> Self {
        let mut shared = Self::start(lease).await;
        shared.nats = set_up(shared.nats.clone());
        shared
    }

    /// The shared server, reached through a proxy.
    async fn through(proxy: &Proxy, lease: Duration) -> Self {
        Self::with(lease, |_| Nats::new(proxy.url()).unwrap().ack_wait(lease).max_age(RETENTION)).await
    }

    /// Makes a stream as somebody else would, to be deleted at the end.
    async fn make_stream(&self, config: Value) -> String {
        let name = config["name"].as_str().unwrap().to_owned();
        self.streams.lock().unwrap().insert(name.clone());
        let made = self.server.ask_soon(format!("STREAM.CREATE.{name}"), config).await;
        assert!(made["error"].is_null(), "{made}");
        name
    }

    /// Makes a durable as somebody else would.
    async fn make_durable(&self, stream: &str, mut config: Value) {
        let name = config["durable_name"].as_str().unwrap_or(SERVICE).to_owned();
        config["durable_name"] = name.clone().into();
        let request = json!({ "stream_name": stream, "config": config });
        let made = self.server.ask_soon(format!("CONSUMER.DURABLE.CREATE.{stream}.{name}"), request).await;
        assert!(made["error"].is_null(), "{made}");
    }

    async fn delete_stream(&self, stream: &str) {
        self.server.ask_soon(format!("STREAM.DELETE.{stream}"), Value::Null).await;
    }

    async fn publisher(&self) -> Arc<Publisher> {
        let mut publisher = self.publisher.lock().await;
        if let Some(publisher) = &*publisher {
            return Arc::clone(publisher);
        }
        // Past a proxy that the consumer has.
        let connected = Arc::new(Nats::new(&self.server.url).unwrap().publisher().await.unwrap());
        *publisher = Some(Arc::clone(&connected));
        connected
    }
}

impl<const ORDERED: bool> Adapter for JetStream<ORDERED> {
    type Transport = Nats;

    const DUPLICATES: f64 = 0.0;
    const SHORT_LEASE: Duration = Duration::from_secs(2);
    const DATED: bool = false;
    const MAKES_WHEN_OPENED: bool = true;
    const CONFIRMS: bool = true;

    fn held_to() -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.ordered = ORDERED;
        capabilities.groups = true;
        capabilities.persistent = true;
        capabilities.delivery_count = true;
        capabilities.delayed_retry = true;
        capabilities.replay = true;
        capabilities.position = true;
        capabilities.retention = Some(RETENTION);
        capabilities
    }

    async fn start(lease: Duration) -> Self {
        Self::on(shared("INBOXED_NATS_URL"), None, lease)
    }

    async fn start_own(lease: Duration) -> Result<Self, Refused> {
        let own = Own::start(if std::env::var_os("INBOXED_NATS_OLD").is_some() { "nats29" } else { "nats" }).await;
        Ok(Self::on(own.url().await, Some(own), lease))
    }

    fn connect(&self, _: &str) -> Result<Nats, Refused> {
        // Each group is a service, and has a durable of its own by that.
        Ok(self.nats.clone())
    }

    async fn publish(&self, source: &str, outgoing: Outgoing) -> Result<(), Refused> {
        let Outgoing { body, headers, ordering_key, sent_at } = outgoing;
        assert!(sent_at.is_none(), "the server dates messages itself");
        if ordering_key.is_some() && !ORDERED {
            return Err(Refused("the durable hands out many messages at a time"));
        }
        if !source.contains('.') {
            self.streams.lock().unwrap().insert(source.to_owned());
        }
        if headers.iter().any(|(_, value)| std::str::from_utf8(value).is_err()) {
            self.create(source).await;
            self.server.publish(source, block(&headers), body).await;
            return Ok(());
        }
        let headers = headers.into_iter().collect::<Headers>();
        let error = loop {
            match self.publisher().await.publish(source, body.clone(), headers.clone()).await {
                Ok(_) => return Ok(()),
                Err(NatsError::NoResponders(_)) => self.create(source).await,
                Err(NatsError::Ended(_)) => *self.publisher.lock().await = None,
                Err(error) => break error,
            }
        };
        panic!("{error}")
    }

    async fn backlog(&self, group: &str, source: &str) -> usize {
        let durable = if group.is_empty() { SERVICE } else { group };
        let stream = self.server.ask_soon(format!("STREAM.INFO.{source}"), Value::Null).await;
        let consumer = self.server.ask_soon(format!("CONSUMER.INFO.{source}.{durable}"), Value::Null).await;
        let count = |value: &Value| usize::try_from(value.as_u64().unwrap_or_default()).unwrap();
        if consumer["error"].is_object() {
            return count(&stream["state"]["messages"]);
        }
        // The server's count of what is to come may be a moment behind a publication.
        let unseen = count(&stream["state"]["last_seq"]).saturating_sub(count(&consumer["delivered"]["stream_seq"]));
        count(&consumer["num_pending"]).max(unseen) + count(&consumer["num_ack_pending"])
    }

    async fn stop_server(&self) -> Result<(), Refused> {
        self.own.as_ref().ok_or(Refused("a shared server isn't stopped"))?.stop().await;
        Ok(())
    }

    async fn start_server(&self) -> Result<(), Refused> {
        self.own.as_ref().ok_or(Refused("a shared server isn't stopped"))?.start_again().await;
        Ok(())
    }
}

/// A time as the server has it.
fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap()
}

/// Headers as they stand in a message, for those that the product's publisher refuses.
fn block(headers: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let lines = headers.iter().flat_map(|(name, value)| [name.as_bytes(), b":", value, b"\r\n"].concat());
    b"NATS/1.0\r\n".iter().copied().chain(lines).chain(*b"\r\n").collect()
}

impl<const ORDERED: bool> Drop for JetStream<ORDERED> {
    fn drop(&mut self) {
        if self.own.is_none() && !std::thread::panicking() {
            for stream in self.streams.lock().unwrap().iter() {
                self.server.ask(&format!("STREAM.DELETE.{stream}"), &Value::Null);
            }
        }
    }
}
