//! A queue's settings, which AMQP has no word for. Declared again as it is, a queue answers that it is there; declared
//! otherwise, it isn't changed, and the server names the first difference with both values. So a queue is declared as it would be
//! made here, then with what the server has named, until it agrees. One that is made here takes one question. What a policy
//! sets isn't told.

use std::time::Duration;

use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};

use super::connection::{Connection, answer, name};
use super::error::RabbitMqError;

/// More differences than there are settings.
const MOST: usize = 24;

/// The settings of a queue.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Arguments {
    pub(super) durable: bool,
    auto_delete: bool,
    table: FieldTable,
}

impl Arguments {
    /// Those of a queue as it would be made.
    pub(super) fn of_ours(table: FieldTable) -> Self {
        Self { durable: true, auto_delete: false, table }
    }

    pub(super) fn has(&self, argument: &str) -> bool {
        self.table.contains_key(argument)
    }

    pub(super) fn text(&self, argument: &str) -> Option<String> {
        self.table.inner().get(argument).and_then(AMQPValue::as_long_string).map(ToString::to_string)
    }

    pub(super) fn number(&self, argument: &str) -> Option<i64> {
        match self.table.inner().get(argument)? {
            AMQPValue::LongInt(number) => Some(i64::from(*number)),
            AMQPValue::LongLongInt(number) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn milliseconds(&self, argument: &str) -> Option<Duration> {
        self.number(argument).and_then(|number| u64::try_from(number).ok()).map(Duration::from_millis)
    }

    pub(super) fn is_set(&self, argument: &str) -> bool {
        self.table.inner().get(argument).and_then(AMQPValue::as_bool) == Some(true)
    }

    /// Reads those of a queue that is there, from a first guess on; or says why they can't be read.
    pub(super) async fn read(
        connection: &Connection,
        queue: &str,
        guess: Self,
    ) -> Result<Result<Self, String>, RabbitMqError> {
        let mut known = guess;
        for _ in 0..MOST {
            let options = QueueDeclareOptions {
                durable: known.durable,
                auto_delete: known.auto_delete,
                ..QueueDeclareOptions::default()
            };
            let channel = connection.channel().await?;
            let declared = channel.queue_declare(name(queue)?, options, known.table.clone());
            match answer("queue.declare", declared).await {
                Ok(_) => return Ok(Ok(known)),
                Err(RabbitMqError::Refused(text)) => match known.with(&text) {
                    Some(better) => known = better,
                    None => return Ok(Err(text)),
                },
                Err(RabbitMqError::Denied(text)) => return Ok(Err(text)),
                Err(error) => return Err(error),
            }
        }
        Ok(Err("the server names ever more of them".to_owned()))
    }

    /// The same, but for the difference that the server has named.
    fn with(&self, text: &str) -> Option<Self> {
        let (_, text) = text.split_once("inequivalent arg '")?;
        let (argument, text) = text.split_once('\'')?;
        let (_, current) = text.split_once("but current is ")?;
        let mut better = self.clone();
        let plain = || current.trim_matches('\'').parse::<bool>().ok();
        match argument {
            "durable" => better.durable = plain()?,
            "auto_delete" => better.auto_delete = plain()?,
            _ if current == "none" => {
                let rest = self.table.inner().iter().filter(|(name, _)| name.as_str() != argument);
                better.table = rest
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect::<std::collections::BTreeMap<_, _>>()
                    .into();
            }
            _ => {
                let said = value(current).or_else(|| alike(self.table.inner().get(argument)?, current));
                better.table.insert(name(argument).ok()?, said?);
            }
        }
        (better != *self).then_some(better)
    }
}

/// `'7'`, where the type is the same.
fn alike(ours: &AMQPValue, text: &str) -> Option<AMQPValue> {
    let text = text.strip_prefix('\'')?.strip_suffix('\'')?;
    match ours {
        AMQPValue::LongString(_) => Some(AMQPValue::LongString(text.into())),
        AMQPValue::Boolean(_) => text.parse().ok().map(AMQPValue::Boolean),
        AMQPValue::LongInt(_) | AMQPValue::LongLongInt(_) => text.parse().ok().map(AMQPValue::LongLongInt),
        _ => None,
    }
}

/// `the value '7' of type 'signedint'`.
fn value(text: &str) -> Option<AMQPValue> {
    let text = text.strip_prefix("the value '")?;
    let (value, kind) = text.rsplit_once("' of type '")?;
    match kind.trim_end_matches('\'') {
        "longstr" => Some(AMQPValue::LongString(value.into())),
        "bool" => value.parse().ok().map(AMQPValue::Boolean),
        "signedint" | "long" | "short" | "byte" | "unsignedint" | "unsignedshort" | "unsignedbyte" => {
            value.parse().ok().map(AMQPValue::LongLongInt)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_that_the_server_names_is_learnt() {
        let quorum = || {
            let mut table = FieldTable::default();
            table.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
            Arguments::of_ours(table)
        };
        let said = |argument: &str, current: &str| {
            let text = format!(
                "PRECONDITION_FAILED - inequivalent arg '{argument}' for queue 'a' in vhost '/': received x but current is {current}"
            );
            quorum().with(&text)
        };
        let limit = said("x-delivery-limit", "the value '7' of type 'signedint'").unwrap();
        assert_eq!(limit.number("x-delivery-limit"), Some(7));
        let exchange = said("x-dead-letter-exchange", "the value 'it's' of type 'longstr'").unwrap();
        assert_eq!(exchange.text("x-dead-letter-exchange").as_deref(), Some("it's"));
        assert!(
            said("x-single-active-consumer", "the value 'true' of type 'bool'")
                .unwrap()
                .is_set("x-single-active-consumer")
        );
        assert_eq!(said("x-queue-type", "'classic'").unwrap().text("x-queue-type").as_deref(), Some("classic"));
        assert_eq!(
            limit
                .with("inequivalent arg 'x-delivery-limit': received '7' but current is '4'")
                .unwrap()
                .number("x-delivery-limit"),
            Some(4)
        );
        assert!(!said("x-queue-type", "none").unwrap().has("x-queue-type"));
        assert!(!said("durable", "'false'").unwrap().durable);
        // What teaches nothing ends the reading.
        assert_eq!(said("x-queue-type", "the value 'quorum' of type 'longstr'"), None);
        assert_eq!(said("x-new", "the value '{}' of type 'table'"), None);
        assert_eq!(quorum().with("PRECONDITION_FAILED - something else"), None);
    }
}
