//! Long polls. Each is a task that nothing drops: a connection that is closed under a poll may take messages with it, which are
//! then gone for a whole visibility timeout. A poll that ends when nobody wants it any more gives back what it has brought.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{Message, MessageSystemAttributeName};
use futures_util::FutureExt as _;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::batch::Batches;
use super::clients::patience;
use super::error::SqsError;
use super::message::fresh_id;
use super::queue::{Queue, is_fifo};

/// The most messages that one poll brings.
pub(super) const MOST: usize = 10;

/// The most polls at a time.
const WIDEST: usize = 10;

/// What a poll has brought.
#[derive(Debug)]
pub(super) struct Brought {
    /// How many it was asked for.
    asked: usize,
    /// When they came, and their leases had begun.
    pub(super) at: Instant,
    pub(super) messages: Vec<Message>,
}

/// The polls of one source.
#[derive(Debug)]
pub(super) struct Polls {
    poll: Arc<Poll>,
    batches: Batches,
    done: mpsc::UnboundedReceiver<Result<Brought, SqsError>>,
    sender: mpsc::UnboundedSender<Result<Brought, SqsError>>,
    /// How many messages may still come of those that are out.
    asked: usize,
    /// How many are out.
    out: usize,
    lease: Duration,
    /// How many may be out: one while there is little to do, since each costs money, and more while they come back full.
    width: usize,
}

#[derive(Debug)]
struct Poll {
    client: Client,
    queue: String,
    url: String,
    wait: Duration,
}

impl Polls {
    pub(super) fn new(client: Client, queue: &Queue, wait: Duration, batches: Batches) -> Self {
        let (sender, done) = mpsc::unbounded_channel();
        let poll = Arc::new(Poll { client, queue: queue.name.clone(), url: queue.url.clone(), wait });
        Self { poll, batches, done, sender, asked: 0, out: 0, lease: queue.lease, width: 1 }
    }

    /// Gives back what was never handed on, unless another consumer may have it by now.
    pub(super) fn give_back(&self, brought: &Brought) {
        if brought.at.elapsed() < self.lease {
            give_back(&self.batches, &brought.messages);
        }
    }

    /// Sees to it that up to so many messages are asked for, of which no more may come.
    pub(super) fn ask(&mut self, free: usize) {
        while self.out < self.width
            && let most = free.saturating_sub(self.asked).min(MOST)
            && most > 0
        {
            self.asked += most;
            self.out += 1;
            let (poll, batches, sender) = (Arc::clone(&self.poll), self.batches.clone(), self.sender.clone());
            tokio::spawn(async move {
                // A poll that never reports would be waited for without end.
                let brought = AssertUnwindSafe(poll.poll(most)).catch_unwind().await;
                let panicked = |_| Err(SqsError::Unreachable { action: "a poll", why: "the SDK panicked".to_owned() });
                let brought = brought.unwrap_or_else(panicked);
                if let Err(mpsc::error::SendError(Ok(unwanted))) = sender.send(brought) {
                    give_back(&batches, &unwanted.messages);
                }
            });
        }
    }

    /// What came first. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Brought, SqsError> {
        // A sender is here, so that the channel can't end.
        let Some(brought) = self.done.recv().await else { return std::future::pending().await };
        self.out -= 1;
        let Ok(brought) = brought else {
            // How much it was asked for is of no matter: the source is opened anew.
            return brought;
        };
        self.asked -= brought.asked;
        self.width = if brought.messages.len() == MOST { (self.width * 2).min(WIDEST) } else { 1 };
        Ok(brought)
    }
}

impl Drop for Polls {
    fn drop(&mut self) {
        self.done.close();
        while let Ok(poll) = self.done.try_recv() {
            if let Ok(brought) = poll {
                self.give_back(&brought);
            }
        }
    }
}

fn give_back(batches: &Batches, messages: &[Message]) {
    messages.iter().filter_map(Message::receipt_handle).for_each(|handle| batches.give_back(handle));
}

impl Poll {
    async fn poll(&self, most: usize) -> Result<Brought, SqsError> {
        let seconds = i32::try_from(self.wait.as_secs()).unwrap_or_default();
        // The SDK's own second attempt gets what the first one took, and whose answer was lost.
        let attempt = is_fifo(&self.queue).then(fresh_id);
        let request = self
            .client
            .receive_message()
            .queue_url(&self.url)
            .max_number_of_messages(i32::try_from(most).unwrap_or(1))
            .wait_time_seconds(seconds)
            .message_system_attribute_names(MessageSystemAttributeName::All)
            .message_attribute_names("All")
            .set_receive_request_attempt_id(attempt);
        let limit = patience(self.wait);
        let answer = timeout(limit, request.send()).await;
        let answer = answer.map_err(|_| SqsError::silence("a poll", limit))?;
        let answer = answer.map_err(|error| SqsError::of("a poll", &self.queue, &error))?;
        Ok(Brought { asked: most, at: Instant::now(), messages: answer.messages.unwrap_or_default() })
    }
}
