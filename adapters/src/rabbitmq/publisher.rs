//! Publishing to where the sources are.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use inboxed_runtime::broker::{BrokerError, Outgoing};
use lapin::BasicProperties;
use lapin::types::ShortString;

use super::RabbitMq;
use super::connection::ANSWER;
use super::error::RabbitMqError;
use super::headers;
use super::outlet::Outlet;
use super::topology::exchange_is_there;

/// Publishes, and waits until a queue has the message. Its connection is made anew when it has ended.
///
/// ```no_run
/// use inboxed_adapters::rabbitmq::RabbitMq;
/// use inboxed_runtime::broker::{Outgoing, Publisher as _};
///
/// # async fn publish() -> Result<(), Box<dyn std::error::Error>> {
/// let publisher = RabbitMq::new("amqp://localhost")?.publisher().await?;
/// publisher.publish("orders", Outgoing::new(r#"{"order_id":1}"#)).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Publisher {
    outlet: Arc<Outlet>,
    /// Which names are exchanges.
    exchanges: Arc<Mutex<HashMap<String, bool>>>,
}

impl RabbitMq {
    /// Connects to publish.
    ///
    /// # Errors
    /// [`RabbitMqError`], which says what is wrong.
    pub async fn publisher(&self) -> Result<Publisher, RabbitMqError> {
        self.outlet.link().await?;
        Ok(Publisher { outlet: Arc::clone(&self.outlet), exchanges: Arc::default() })
    }
}

impl Publisher {
    /// Publishes a message to an exchange under a routing key, and waits until each queue that gets it has stored it. The
    /// exchange of no name gives it to the queue that the key names.
    ///
    /// # Errors
    /// [`RabbitMqError::Unroutable`] if no queue gets it. After any other error the message may be stored all the same:
    /// publish it again, with the same key inside.
    pub async fn publish_to(&self, exchange: &str, key: &str, message: &Outgoing) -> Result<(), RabbitMqError> {
        let mut properties = BasicProperties::default().with_headers(headers::sent(&message.headers)?);
        if let Ok(now) = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
            properties = properties.with_timestamp(now.as_secs());
        }
        if let Some(id) = &message.id {
            let id = ShortString::try_new(id.as_str());
            let id = id.map_err(|_| RabbitMqError::Message("its id has more than 255 bytes".to_owned()))?;
            properties = properties.with_message_id(id);
        }
        self.outlet.publish(exchange, key, properties, &message.body, ANSWER).await
    }

    /// To the exchange of this name, or else to the queue.
    async fn publish_by_name(&self, to: &str, message: &Outgoing) -> Result<(), RabbitMqError> {
        let known = || self.exchanges.lock().unwrap_or_else(PoisonError::into_inner);
        let remembered = known().get(to).copied();
        let is_exchange = match remembered {
            Some(is_exchange) => is_exchange,
            None => exchange_is_there(&self.outlet.link().await?.connection, to).await?,
        };
        known().insert(to.to_owned(), is_exchange);
        let exchange = if is_exchange { to } else { "" };
        let published = self.publish_to(exchange, to, message).await;
        if matches!(published, Err(RabbitMqError::Unroutable(_) | RabbitMqError::NoQueue(_))) {
            known().remove(to);
        }
        match published {
            // The exchange or the queue was made or deleted since it was asked for.
            Err(RabbitMqError::Unroutable(_) | RabbitMqError::NoQueue(_)) if remembered.is_some() => {
                Box::pin(self.publish_by_name(to, message)).await
            }
            Err(RabbitMqError::NoQueue(_)) => Err(RabbitMqError::Unroutable(format!("`{to}`"))),
            published => published,
        }
    }
}

impl inboxed_runtime::broker::Publisher for Publisher {
    async fn publish(&self, to: &str, message: Outgoing) -> Result<(), BrokerError> {
        Ok(self.publish_by_name(to, &message).await?)
    }
}
