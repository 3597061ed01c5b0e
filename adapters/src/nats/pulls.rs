//! Where pulled messages come in: each with the moment it came, and none left behind when nobody wants it any more.

use async_nats::Message;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::connection::Connection;
use super::error::NatsError;

/// A subscription to inboxes of its own. Dropped, it ends, and what is still on its way to it is given back to the server.
#[derive(Debug)]
pub(super) struct Pulls {
    /// What the inboxes' subjects begin with.
    pub(super) inbox: String,
    delivered: mpsc::UnboundedReceiver<Delivered>,
    server: Connection,
}

/// A message that came, and when: its lease runs from then.
#[derive(Debug)]
pub(super) struct Delivered {
    pub(super) at: Instant,
    pub(super) message: Message,
}

impl Pulls {
    pub(super) async fn open(server: &Connection) -> Result<Self, NatsError> {
        let inbox = server.client.new_inbox();
        let mut subscriber = server.client.subscribe(format!("{inbox}.*")).await.map_err(|_| server.why())?;
        let (sender, delivered) = mpsc::unbounded_channel();
        tokio::spawn({
            let server = server.clone();
            async move {
                let mut wanted = true;
                loop {
                    let message = tokio::select! {
                        message = subscriber.next() => message,
                        () = sender.closed(), if wanted => {
                            wanted = false;
                            // What has come already is still handed out.
                            if subscriber.drain().await.is_err() {
                                return;
                            }
                            continue;
                        }
                    };
                    let Some(message) = message else { break };
                    if let Err(left) = sender.send(Delivered { at: Instant::now(), message }) {
                        server.give_back(&left.0.message).await;
                    }
                }
                if wanted {
                    server.lost();
                }
            }
        });
        Ok(Self { inbox, delivered, server: server.clone() })
    }

    /// What has come already.
    pub(super) fn ready(&mut self) -> Option<Delivered> {
        self.delivered.try_recv().ok()
    }

    /// Waits for what comes next; `None` at the end of the connection.
    pub(super) async fn next(&mut self) -> Option<Delivered> {
        self.delivered.recv().await
    }
}

impl Drop for Pulls {
    fn drop(&mut self) {
        self.delivered.close();
        while let Ok(Delivered { message, .. }) = self.delivered.try_recv() {
            // Without room for it the lease brings the message back.
            let _ = self.server.give_back(&message).now_or_never();
        }
    }
}
