//! Retries that come later, without a hot loop and over restarts: a message waits in a delay queue, which hands it back to its
//! own queue when its time is over. It is moved, not answered: the delay queue has confirmed it before the original is
//! acknowledged, so that a crash between the two leaves a copy more, which is a duplicate, and never one less.
//!
//! A queue lets go of what is at its head only, so that messages of different delays don't share one: each holds delays
//! from half of its own to the whole, and a message waits twice its delay at most. Delay queues are quorum queues that
//! dead-letter at least once, and stay: one that expired while its target is gone would take its messages with it.

use std::sync::Arc;
use std::time::Duration;

use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};
use tokio::time::sleep;

use super::connection::{answer, name};
use super::error::RabbitMqError;
use super::moved::{Original, pack};
use super::outlet::Outlet;

/// The delay of the first queue, in milliseconds; each next one has twice that.
const SHORTEST: u64 = 125;

/// The longest delay, some 24 days: the server takes no time to live above 2^32 milliseconds.
const LONGEST: u64 = SHORTEST << 24;

/// How long a queue that was just made isn't trusted: a server that is killed meanwhile may forget it with what it has confirmed,
/// since it writes the names of its queues half a second after the last of them (seen on 3.10).
const YOUNG: Duration = Duration::from_secs(2);

/// Moves messages of one queue into its delay queues.
#[derive(Clone, Debug)]
pub(super) struct Delays {
    pub(super) outlet: Arc<Outlet>,
    pub(super) queue: Arc<str>,
}

impl Delays {
    /// Has this message delivered again after the delay. The delay queue's confirmation may take so long.
    pub(super) async fn put(
        &self,
        original: &Original,
        body: &[u8],
        delay: Duration,
        patience: Duration,
    ) -> Result<(), RabbitMqError> {
        let milliseconds = u64::try_from(delay.as_nanos().div_ceil(1_000_000)).unwrap_or(LONGEST).min(LONGEST);
        let holds = holds(milliseconds);
        let queue = format!("{}.retry.{}", self.queue, time(holds));
        for last in [false, true] {
            self.make(&queue, holds).await?;
            match self.outlet.publish("", &queue, pack(original, milliseconds), body, patience).await {
                // It was deleted since.
                Err(RabbitMqError::Unroutable(_)) if !last => self.outlet.made().remove(&queue),
                other => return other,
            };
        }
        Ok(())
    }

    async fn make(&self, queue: &str, holds: u64) -> Result<(), RabbitMqError> {
        if self.outlet.made().contains(queue) {
            return Ok(());
        }
        let text = |text: &str| AMQPValue::LongString(text.into());
        let mut arguments = FieldTable::default();
        arguments.insert("x-queue-type".into(), text("quorum"));
        arguments.insert("x-message-ttl".into(), AMQPValue::LongLongInt(i64::try_from(holds).unwrap_or(i64::MAX)));
        arguments.insert("x-dead-letter-exchange".into(), text(""));
        arguments.insert("x-dead-letter-routing-key".into(), text(&self.queue));
        arguments.insert("x-dead-letter-strategy".into(), text("at-least-once"));
        arguments.insert("x-overflow".into(), text("reject-publish"));
        let channel = self.outlet.link().await?.connection.channel().await?;
        answer("queue.declare", channel.queue_declare(name(queue)?, QueueDeclareOptions::durable(), arguments)).await?;
        sleep(YOUNG).await;
        self.outlet.made().insert(queue.to_owned());
        Ok(())
    }
}

/// The longest delay that the queue for this one holds.
fn holds(milliseconds: u64) -> u64 {
    SHORTEST * milliseconds.div_ceil(SHORTEST).max(1).next_power_of_two()
}

fn time(milliseconds: u64) -> String {
    if milliseconds.is_multiple_of(1_000) { format!("{}s", milliseconds / 1_000) } else { format!("{milliseconds}ms") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_queue_holds_delays_from_half_its_own() {
        let queues = [0, 1, 125, 126, 250, 999, 1_000, 1_001, 60_000].map(|delay| time(holds(delay)));
        assert_eq!(queues, ["125ms", "125ms", "125ms", "250ms", "250ms", "1s", "1s", "2s", "64s"]);
        assert_eq!(holds(LONGEST), LONGEST);
        assert!(LONGEST < u64::from(u32::MAX));
    }
}
