//! Publishing, and waiting until the stream has the message.

use std::sync::Arc;

use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::response::Response;
use bytes::Bytes;
use inboxed_runtime::Headers;
use inboxed_runtime::broker::{self, BrokerError, Outgoing};
use tokio::sync::Mutex;
use tokio::time::timeout;

use super::Nats;
use super::api::refusal;
use super::connection::{ANSWER, Connection, Login};
use super::error::NatsError;
use super::headers;

/// By this the server knows a repetition.
const ID: &str = "Nats-Msg-Id";

/// Publishes to streams, over one connection, which is made anew for the next message after it has ended. Clones share it.
///
/// As a [`broker::Publisher`] it publishes to subjects, sends [`Outgoing::id`] as `Nats-Msg-Id`, and knows of no groups.
#[derive(Clone, Debug)]
pub struct Publisher {
    login: Login,
    connection: Arc<Mutex<Connection>>,
}

impl Nats {
    /// Connects to publish.
    ///
    /// # Errors
    /// [`NatsError`], which says what is wrong.
    pub async fn publisher(&self) -> Result<Publisher, NatsError> {
        let connection = Arc::new(Mutex::new(self.login.connect(0).await?));
        Ok(Publisher { login: self.login.clone(), connection })
    }
}

impl Publisher {
    /// Publishes a message, and waits until the stream that holds the subject has stored it. Answers with its position there,
    /// or `None` if it had one with this `Nats-Msg-Id` already.
    ///
    /// After an error the message may be stored all the same: publish it again, with the same key inside.
    ///
    /// # Errors
    /// [`NatsError`]; [`NatsError::NoResponders`] if no stream holds the subject.
    ///
    /// ```no_run
    /// # async fn publish() -> Result<(), Box<dyn std::error::Error>> {
    /// let publisher = inboxed_adapters::nats::Nats::new("nats://localhost")?.publisher().await?;
    /// publisher.publish("orders", r#"{"order_id":1}"#, [("type", "OrderPlaced")]).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn publish(
        &self,
        subject: &str,
        body: impl Into<Bytes>,
        headers: impl Into<Headers>,
    ) -> Result<Option<u64>, NatsError> {
        let headers = headers::sent(&headers.into())?;
        if subject.is_empty() || subject.contains(|char: char| char.is_whitespace() || char.is_control()) {
            return Err(NatsError::Name(subject.to_owned(), "subject", "choose another"));
        }
        let connection = self.connected().await?;
        let reply = timeout(ANSWER, connection.request(subject, headers, body.into())).await;
        let reply = reply.map_err(|_| connection.silent(subject, ANSWER))??;
        match serde_json::from_slice(&reply.payload) {
            Ok(Response::Ok(PublishAck { sequence, duplicate, .. })) => Ok((!duplicate).then_some(sequence)),
            Ok(Response::Err { error }) => Err(refusal(subject, &error)),
            Err(error) => Err(NatsError::Protocol(format!("the answer to a message for `{subject}`: {error}"))),
        }
    }

    async fn connected(&self) -> Result<Connection, NatsError> {
        let mut connection = self.connection.lock().await;
        if connection.is_over() {
            *connection = self.login.connect(0).await?;
        }
        Ok(connection.clone())
    }
}

impl broker::Publisher for Publisher {
    async fn publish(&self, to: &str, message: Outgoing) -> Result<(), BrokerError> {
        let mut headers = message.headers;
        if let Some(id) = message.id {
            // The server takes the first, which may be that of a message that is sent on.
            let others = headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case(ID));
            headers = others.map(|(name, value)| (name.to_owned(), Bytes::copy_from_slice(value))).collect();
            headers.push(ID, id);
        }
        Ok(self.publish(to, message.body, headers).await.map(drop)?)
    }
}
