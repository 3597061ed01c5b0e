//! Publishing, and waiting until the queue has the message.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use inboxed_runtime::broker::{BrokerError, Outgoing};

use super::Sqs;
use super::error::SqsError;
use super::message;
use super::options::Place;
use super::queue::{is_fifo, url};

/// Publishes to queues, by the names of their sources.
#[derive(Clone, Debug)]
pub struct Publisher {
    sqs: Sqs,
    /// Where the queues are that were published to.
    urls: Arc<Mutex<HashMap<String, String>>>,
}

impl Sqs {
    /// What publishes to the queues of this transport's sources.
    pub fn publisher(&self) -> Publisher {
        Publisher { sqs: self.clone(), urls: Arc::default() }
    }
}

impl Publisher {
    /// Publishes a message, and waits until the queue has it.
    ///
    /// The headers become message attributes, ten at most, with names of letters, digits, `-`, `_` and `.`. A body that isn't
    /// text, as SQS has it, is sent as Base64 and marked by an attribute; a consumer of this crate gets the bytes.
    ///
    /// A FIFO queue needs the message's group. Without an id the message gets one of its own, so that equal messages are
    /// both delivered: give the same id again when the outcome is unknown, and the queue drops the repetition for five
    /// minutes; later it is a duplicate for the inbox.
    ///
    /// # Errors
    /// [`SqsError`]. After [`SqsError::Unreachable`] the message may be in the queue all the same.
    ///
    /// ```no_run
    /// # async fn publish() -> Result<(), Box<dyn std::error::Error>> {
    /// use inboxed_runtime::broker::Outgoing;
    ///
    /// let publisher = inboxed_adapters::sqs::Sqs::new("sqs://")?.publisher();
    /// let mut placed = Outgoing::new(r#"{"order_id":1}"#);
    /// placed.group = Some("customer 7".to_owned());
    /// publisher.publish("orders.fifo", placed).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn publish(&self, to: &str, outgoing: Outgoing) -> Result<(), SqsError> {
        let (body, attributes) = message::sent(&outgoing.body, &outgoing.headers)?;
        let url = self.url(to).await?;
        let (group, id) = match (outgoing.group, outgoing.id) {
            (None, _) if is_fifo(&url) => {
                return Err(SqsError::Message(format!(
                    "`{to}` is a FIFO queue, and needs its group: set `Outgoing::group`"
                )));
            }
            (group, Some(id)) if is_fifo(&url) => (group, Some(id)),
            (group, None) if is_fifo(&url) => (group, Some(message::fresh_id())),
            (group, _) => (group, None),
        };
        let sent = self
            .sqs
            .client
            .send_message()
            .queue_url(url)
            .message_body(body)
            .set_message_attributes(Some(attributes).filter(|attributes| !attributes.is_empty()))
            .set_message_group_id(group)
            .set_message_deduplication_id(id)
            .send();
        match sent.await {
            Ok(_) => Ok(()),
            Err(error) => {
                let error = SqsError::of("a message", to, &error);
                if matches!(error, SqsError::NoQueue(_)) {
                    self.urls.lock().unwrap_or_else(PoisonError::into_inner).remove(to);
                }
                Err(error)
            }
        }
    }

    async fn url(&self, to: &str) -> Result<String, SqsError> {
        let name = match self.sqs.options.place(to) {
            Place::Url(url) => return Ok(url),
            Place::Queue(name) => name,
        };
        let known = self.urls.lock().unwrap_or_else(PoisonError::into_inner).get(to).cloned();
        if let Some(url) = known {
            return Ok(url);
        }
        let url = url(&self.sqs.client, &name, None).await?;
        self.urls.lock().unwrap_or_else(PoisonError::into_inner).insert(to.to_owned(), url.clone());
        Ok(url)
    }
}

impl inboxed_runtime::broker::Publisher for Publisher {
    async fn publish(&self, to: &str, message: Outgoing) -> Result<(), BrokerError> {
        Ok(Self::publish(self, to, message).await?)
    }
}
