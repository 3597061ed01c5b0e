//! Publishing, and waiting until the stream has the message.

use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::response::Response;
use bytes::Bytes;
use inboxed_runtime::Headers;
use tokio::time::timeout;

use super::Nats;
use super::api::refusal;
use super::connection::{ANSWER, Connection};
use super::error::NatsError;
use super::headers;

/// Publishes to streams, over one connection.
#[derive(Clone, Debug)]
pub struct Publisher(Connection);

impl Nats {
    /// Connects to publish.
    ///
    /// # Errors
    /// [`NatsError`], which says what is wrong.
    pub async fn publisher(&self) -> Result<Publisher, NatsError> {
        Ok(Publisher(self.login.connect(0).await?))
    }
}

impl Publisher {
    /// Publishes a message, and waits until the stream that holds the subject has stored it. Answers with its position there,
    /// or `None` if it had one with this `Nats-Msg-Id` already.
    ///
    /// After an error the message may be stored all the same: publish it again, with the same key inside.
    ///
    /// # Errors
    /// [`NatsError`]; [`NatsError::NoResponders`] if no stream holds the subject. After [`NatsError::Ended`] a new publisher is
    /// needed.
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
        let reply = timeout(ANSWER, self.0.request(subject, headers, body.into())).await;
        let reply = reply.map_err(|_| self.0.silent(subject, ANSWER))??;
        match serde_json::from_slice(&reply.payload) {
            Ok(Response::Ok(PublishAck { sequence, duplicate, .. })) => Ok((!duplicate).then_some(sequence)),
            Ok(Response::Err { error }) => Err(refusal(subject, &error)),
            Err(error) => Err(NatsError::Protocol(format!("the answer to a message for `{subject}`: {error}"))),
        }
    }
}
