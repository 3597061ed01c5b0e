//! Publishing, and waiting until the stream has the message.

use std::time::Duration;

use bytes::Bytes;
use inboxed_runtime::Headers;
use tokio::time::timeout;

use super::Nats;
use super::api::{Published, answer};
use super::connection::Connection;
use super::error::NatsError;

const ANSWER: Duration = Duration::from_secs(5);

/// Publishes to streams, over one connection.
#[derive(Clone, Debug)]
pub struct Publisher(Connection);

impl Nats {
    /// Connects to publish.
    ///
    /// # Errors
    /// [`NatsError`], which says what is wrong.
    pub async fn publisher(&self) -> Result<Publisher, NatsError> {
        Ok(Publisher(self.login.connect().await?))
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
        let (body, headers) = (body.into(), headers.into());
        if subject.is_empty() || subject.contains(|char: char| char.is_whitespace() || char.is_control()) {
            return Err(NatsError::Name(subject.to_owned(), "subject", "choose another"));
        }
        let unfit = |text: &[u8]| text.iter().any(|byte| matches!(byte, b'\r' | b'\n'));
        if headers.iter().any(|(name, value)| name.contains(':') || unfit(name.as_bytes()) || unfit(value)) {
            return Err(NatsError::Protocol(
                "a header that is to be sent has a line break, or a colon in its name".to_owned(),
            ));
        }
        let reply = timeout(ANSWER, self.0.request(subject, &headers, &body)).await;
        let reply = reply.map_err(|_| NatsError::silence(subject, ANSWER))??;
        let Published { seq, duplicate } = answer(subject, &reply.body)?;
        Ok((!duplicate).then_some(seq))
    }
}
