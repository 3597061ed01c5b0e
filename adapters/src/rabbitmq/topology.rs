//! What a source needs, made if it isn't there. What is there stays as it is, and a difference is named by the server.

use lapin::ExchangeKind;
use lapin::options::{ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::types::{AMQPValue, FieldTable};

use super::connection::{Connection, answer, name};
use super::error::RabbitMqError;
use super::options::Options;
use super::place::{Exchange, Place};

/// After how many deliveries a message of a queue that is made here is given up: attempts are counted in the inbox, and the
/// server counts restarts too. Without a number it is 20 from RabbitMQ 4.0 on; and -1, which is endless there, gives up at
/// once before.
const DELIVERIES: i32 = i32::MAX;

/// Makes the queue of a place, and what it is bound to.
pub(super) async fn create(
    connection: &Connection,
    source: &str,
    place: &Place,
    options: &Options,
) -> Result<Vec<String>, RabbitMqError> {
    let mut made = Vec::new();
    let own = connection.queue(&place.queue).await?.is_some();
    let other = match (own, &place.or_queue) {
        (false, Some(queue)) => connection.queue(queue).await?.is_some(),
        _ => false,
    };
    if other || (own && place.exchange.is_none()) {
        // Somebody made it, and the source is read from it as it is.
        return Ok(made);
    }
    let exchange = match &place.exchange {
        None => None,
        Some(Exchange::OfSource(exchange)) => {
            let there = exchange_is_there(connection, exchange).await?;
            declare_exchange(connection, source, exchange, ExchangeKind::Fanout).await?;
            if !there {
                made.push(format!("exchange `{exchange}`, which gives each message to each of its queues"));
            }
            Some((exchange, vec![String::new()]))
        }
        Some(Exchange::Named(exchange, keys)) => {
            if !exchange_is_there(connection, exchange).await? {
                declare_exchange(connection, source, exchange, ExchangeKind::Topic).await?;
                made.push(format!("exchange `{exchange}`, of topics"));
            }
            Some((exchange, keys.clone()))
        }
    };
    declare_queue(connection, source, &place.queue, options).await?;
    if !own {
        made.push(format!("queue `{}`, a quorum queue", place.queue));
    }
    if let Some((exchange, keys)) = exchange {
        let channel = connection.channel().await?;
        for key in keys {
            let (queue, exchange, key) = (name(&place.queue)?, name(exchange)?, name(&key)?);
            let bound = channel.queue_bind(queue, exchange, key, QueueBindOptions::default(), FieldTable::default());
            answer("queue.bind", bound).await?;
        }
    }
    Ok(made)
}

/// Whether an exchange is there, whatever its type.
pub(super) async fn exchange_is_there(connection: &Connection, exchange: &str) -> Result<bool, RabbitMqError> {
    let channel = connection.channel().await?;
    let passive = ExchangeDeclareOptions { passive: true, ..ExchangeDeclareOptions::default() };
    let (kind, none) = (ExchangeKind::default(), FieldTable::default());
    match answer("exchange.declare", channel.exchange_declare(name(exchange)?, kind, passive, none)).await {
        Ok(()) => Ok(true),
        Err(RabbitMqError::NoQueue(_)) => Ok(false),
        Err(error) => Err(error),
    }
}

async fn declare_exchange(
    connection: &Connection,
    source: &str,
    exchange: &str,
    kind: ExchangeKind,
) -> Result<(), RabbitMqError> {
    let channel = connection.channel().await?;
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let declared = channel.exchange_declare(name(exchange)?, kind, durable, FieldTable::default());
    different(answer("exchange.declare", declared).await, || {
        let cure = format!("name another by `.source(\"{source}\", Binding::exchange(…))`, or delete it");
        (format!("exchange `{exchange}`"), cure)
    })
}

/// The settings of a queue that is made here.
pub(super) fn ours(options: &Options) -> FieldTable {
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    arguments.insert("x-delivery-limit".into(), AMQPValue::LongInt(DELIVERIES));
    if options.one_at_a_time {
        arguments.insert("x-single-active-consumer".into(), AMQPValue::Boolean(true));
    }
    arguments
}

async fn declare_queue(
    connection: &Connection,
    source: &str,
    queue: &str,
    options: &Options,
) -> Result<(), RabbitMqError> {
    let channel = connection.channel().await?;
    let declared = channel.queue_declare(name(queue)?, QueueDeclareOptions::durable(), ours(options));
    different(answer("queue.declare", declared).await.map(drop), || {
        let cure =
            format!("if it will do, say so by `.source(\"{source}\", Binding::queue(\"{queue}\"))`; else delete it");
        (format!("queue `{queue}`"), cure)
    })
}

/// The server's own word for a difference, which has both values, and the cure.
fn different(declared: Result<(), RabbitMqError>, about: impl Fn() -> (String, String)) -> Result<(), RabbitMqError> {
    declared.map_err(|error| match error {
        RabbitMqError::Refused(text) => {
            let (what, cure) = about();
            RabbitMqError::Different { what, difference: format!("{text}; {cure}") }
        }
        error => error,
    })
}
