//! What is said about deliveries, up to ten to a request: what comes while a request is out goes with the next.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::types::{
    BatchResultErrorEntry, ChangeMessageVisibilityBatchRequestEntry, DeleteMessageBatchRequestEntry,
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{sleep, timeout};

use super::clients::CALL;
use super::error::SqsError;

/// The most entries of one request.
const BATCH: usize = 10;

/// How many requests of a kind may be out at once.
const AT_ONCE: usize = 8;

/// How often an entry is sent that the service fails to take in through a fault of its own.
const TIMES: u32 = 3;

/// The wait before the second time.
const PAUSE: Duration = Duration::from_millis(100);

/// How the service took a word about a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Taken,
    /// The message is gone, or the handle isn't its latest.
    Gone,
    /// Nobody knows whether it was heard.
    Unheard,
}

/// Says things about the deliveries of one queue. What was handed to it is said, whoever waits for the answer.
#[derive(Clone, Debug)]
pub(super) struct Batches {
    deletions: mpsc::UnboundedSender<Entry>,
    changes: mpsc::UnboundedSender<Entry>,
}

#[derive(Debug)]
struct Entry {
    handle: String,
    word: Word,
    reply: oneshot::Sender<Said>,
}

#[derive(Clone, Copy, Debug)]
enum Word {
    Delete,
    /// Invisible for so many seconds.
    Hide(i32),
}

impl Batches {
    /// Starts what sends, until nobody has anything to say.
    pub(super) fn start(client: &Client, queue: &str, url: &str) -> Self {
        let queue = Arc::new(Queue { client: client.clone(), name: queue.to_owned(), url: url.to_owned() });
        let start = || {
            let (sender, receiver) = mpsc::unbounded_channel();
            tokio::spawn(gather(Arc::clone(&queue), receiver));
            sender
        };
        Self { deletions: start(), changes: start() }
    }

    pub(super) async fn delete(&self, handle: &str) -> Said {
        say(&self.deletions, handle, Word::Delete).await
    }

    /// Keeps a message from all consumers for so many seconds, from now on.
    pub(super) async fn hide(&self, handle: &str, seconds: i32) -> Said {
        say(&self.changes, handle, Word::Hide(seconds)).await
    }

    /// Gives a message back at once. Nobody waits for the answer: without it the lease runs out.
    pub(super) fn give_back(&self, handle: &str) {
        drop(send(&self.changes, handle, Word::Hide(0)));
    }
}

fn send(to: &mpsc::UnboundedSender<Entry>, handle: &str, word: Word) -> oneshot::Receiver<Said> {
    let (reply, answer) = oneshot::channel();
    // What sends lives as long as this sender, unless the whole runtime ends.
    let _ = to.send(Entry { handle: handle.to_owned(), word, reply });
    answer
}

async fn say(to: &mpsc::UnboundedSender<Entry>, handle: &str, word: Word) -> Said {
    send(to, handle, word).await.unwrap_or(Said::Unheard)
}

async fn gather(queue: Arc<Queue>, mut entries: mpsc::UnboundedReceiver<Entry>) {
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    let mut batch = Vec::new();
    while entries.recv_many(&mut batch, BATCH).await > 0 {
        // Whoever has more to say does so before it waits for an answer.
        tokio::task::yield_now().await;
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        while batch.len() < BATCH
            && let Ok(entry) = entries.try_recv()
        {
            batch.push(entry);
        }
        tokio::spawn(Arc::clone(&queue).send(std::mem::take(&mut batch), slot));
    }
}

#[derive(Debug)]
struct Queue {
    client: Client,
    name: String,
    url: String,
}

impl Queue {
    async fn send(self: Arc<Self>, mut entries: Vec<Entry>, _slot: OwnedSemaphorePermit) {
        for time in 1.. {
            let failed = match timeout(CALL, self.request(&entries)).await {
                Ok(Ok(failed)) => failed,
                Ok(Err(error)) => return self.unheard(entries, &error),
                Err(_) => return self.unheard(entries, &SqsError::silence("a settlement", CALL)),
            };
            let mut again = Vec::new();
            for (index, entry) in entries.into_iter().enumerate() {
                let failure = failed.iter().find(|failure| failure.id() == id(index));
                let said = match failure {
                    None => Said::Taken,
                    Some(failure) if failure.sender_fault() => Said::Gone,
                    Some(_) if time < TIMES => {
                        again.push(entry);
                        continue;
                    }
                    Some(_) => Said::Unheard,
                };
                if let Some(failure) = failure {
                    let (queue, code) = (&self.name, failure.code());
                    tracing::debug!(%queue, code, message = failure.message(), ?said, "an entry of a batch failed");
                }
                // Nobody waits for what was only given back.
                let _ = entry.reply.send(said);
            }
            if again.is_empty() {
                return;
            }
            entries = again;
            sleep(PAUSE * time).await;
        }
    }

    fn unheard(&self, entries: Vec<Entry>, error: &SqsError) {
        tracing::warn!(queue = %self.name, %error, count = entries.len(), "deliveries couldn't be settled");
        for entry in entries {
            let _ = entry.reply.send(Said::Unheard);
        }
    }

    /// One request; an answer of 200 may still name entries that failed.
    async fn request(&self, entries: &[Entry]) -> Result<Vec<BatchResultErrorEntry>, SqsError> {
        let mut deletions = Vec::new();
        let mut changes = Vec::new();
        for (index, Entry { handle, word, .. }) in entries.iter().enumerate() {
            match word {
                Word::Delete => {
                    let entry = DeleteMessageBatchRequestEntry::builder().id(id(index)).receipt_handle(handle);
                    deletions.push(entry.build().map_err(|error| unbuilt(&error))?);
                }
                Word::Hide(seconds) => {
                    let entry = ChangeMessageVisibilityBatchRequestEntry::builder().id(id(index));
                    let entry = entry.receipt_handle(handle).visibility_timeout(*seconds);
                    changes.push(entry.build().map_err(|error| unbuilt(&error))?);
                }
            }
        }
        let mut failed = Vec::new();
        if !deletions.is_empty() {
            let sent = self.client.delete_message_batch().queue_url(&self.url).set_entries(Some(deletions)).send();
            let answer = sent.await.map_err(|error| SqsError::of("to delete messages", &self.name, &error))?;
            failed.extend(answer.failed);
        }
        if !changes.is_empty() {
            let sent = self.client.change_message_visibility_batch().queue_url(&self.url).set_entries(Some(changes));
            let answer = sent.send().await.map_err(|error| SqsError::of("to hide messages", &self.name, &error))?;
            failed.extend(answer.failed);
        }
        Ok(failed)
    }
}

fn id(index: usize) -> String {
    index.to_string()
}

fn unbuilt(error: &aws_sdk_sqs::error::BuildError) -> SqsError {
    SqsError::Unreachable { action: "a settlement", why: error.to_string() }
}
