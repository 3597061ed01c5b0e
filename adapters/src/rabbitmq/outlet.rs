//! Publishing, with proof. The server says of a message that nobody takes that it is returned, and then confirms it; which
//! confirmation belongs to a return is certain only while the channel has one message out. So each has a channel to itself,
//! from a few that are kept. The connection is none that consumes: the server stops listening to whoever publishes when it
//! is short of memory, and must still hear acknowledgements.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lapin::options::{BasicPublishOptions, ConfirmSelectOptions};
use lapin::{BasicProperties, Channel, Confirmation};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::connection::{Connection, GREETING, Login, answer, name};
use super::error::RabbitMqError;

/// How many messages may be on their way at once.
const LANES: usize = 64;

/// Publishes over one connection, which is made when it is needed, and anew when it has ended.
#[derive(Debug)]
pub(super) struct Outlet {
    login: Login,
    link: tokio::sync::Mutex<Option<Arc<Link>>>,
    lanes: Semaphore,
    /// Queues that were made, and are trusted.
    made: Mutex<HashSet<String>>,
}

/// A connection, and what is known of it.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) connection: Connection,
    idle: Mutex<Vec<Channel>>,
}

impl Link {
    fn idle(&self) -> MutexGuard<'_, Vec<Channel>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn lane(&self) -> Result<Channel, RabbitMqError> {
        let idle = self.idle().pop();
        if let Some(lane) = idle {
            return Ok(lane);
        }
        let lane = self.connection.channel().await?;
        answer("confirm.select", lane.confirm_select(ConfirmSelectOptions::default())).await?;
        Ok(lane)
    }
}

impl Outlet {
    pub(super) fn new(login: Login) -> Self {
        let lanes = Semaphore::new(LANES);
        Self { login, link: tokio::sync::Mutex::default(), lanes, made: Mutex::default() }
    }

    pub(super) fn made(&self) -> MutexGuard<'_, HashSet<String>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection, made if there is none that lives.
    pub(super) async fn link(&self) -> Result<Arc<Link>, RabbitMqError> {
        let lock = timeout(GREETING, self.link.lock()).await;
        // Those before us wait for the server one after another.
        let mut link = lock.map_err(|_| RabbitMqError::silence("to a connection", GREETING))?;
        let lives = |link: &&Arc<Link>| !link.connection.is_over() && !link.connection.is_worn();
        if let Some(link) = link.as_ref().filter(lives) {
            return Ok(Arc::clone(link));
        }
        let connection = self.login.connect().await?;
        let made = Arc::new(Link { connection, idle: Mutex::default() });
        *link = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Publishes a message, and waits until a queue has it, but no longer than `patience`.
    pub(super) async fn publish(
        &self,
        exchange: &str,
        key: &str,
        properties: BasicProperties,
        body: &[u8],
        patience: Duration,
    ) -> Result<(), RabbitMqError> {
        let (exchange, key) = (name(exchange)?, name(key)?);
        // Closed by nobody.
        let _permit = self.lanes.acquire().await;
        let link = self.link().await?;
        // The client would keep the message until the server takes some again, however long that is.
        link.connection.unless_blocked()?;
        let lane = link.lane().await?;
        let to = || match exchange.as_str() {
            "" => format!("queue `{key}`"),
            _ => format!("exchange `{exchange}` with key `{key}`"),
        };
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let published = async {
            lane.basic_publish(exchange.clone(), key.clone(), options, body, properties.with_delivery_mode(2))
                .await?
                .await
        };
        let Ok(confirmed) = timeout(patience, published).await else {
            link.connection.unless_blocked()?;
            return Err(RabbitMqError::silence(&format!("to a message for {}", to()), patience));
        };
        let confirmed = confirmed?;
        link.idle().push(lane.clone());
        match confirmed {
            Confirmation::Ack(None) => Ok(()),
            Confirmation::Ack(Some(_)) => Err(RabbitMqError::Unroutable(to())),
            Confirmation::Nack(_) | Confirmation::NotRequested => Err(RabbitMqError::NotStored(to())),
        }
    }
}
