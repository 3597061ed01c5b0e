//! What a consumer written by hand does to a broker: receive and acknowledge, on nobody's proof.

use std::sync::Arc;
use std::time::Duration;

use inboxed::broker::{Incoming, Settled, Source as _};
use inboxed::memory::{MemorySettler, MemorySource, MemoryToken};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::arguments::{BrokerKind, Run};
use crate::client::Client;
use crate::consumer::CONCURRENCY;
use crate::feed::{self, Forgotten};
use crate::ledger::{Message, SOURCES};
use crate::tally::Tally;

/// One delivery in a loop's hand.
pub(crate) enum Hand {
    Memory {
        settler: MemorySettler,
        token: MemoryToken,
        id: i64,
        forgotten: Arc<Forgotten>,
    },
    /// The loop's connection, and by what it acknowledges the delivery.
    Server {
        client: Arc<Mutex<Client>>,
        source: &'static str,
        receipt: String,
    },
}

impl Hand {
    /// Acknowledges, whatever has been committed.
    pub(crate) async fn acknowledge(self) -> anyhow::Result<()> {
        match self {
            Self::Memory { settler, token, id, forgotten } => {
                if settler.acknowledge_without_proof(token) == Settled::Confirmed {
                    forgotten.note(id)?;
                }
            }
            Self::Server { client, source, receipt } => client.lock().await.acknowledge(source, &receipt).await?,
        }
        Ok(())
    }
}

/// Hands every delivery to the loop's body, several at once. A failure is left to the lease.
pub(crate) async fn work<F, W>(run: &Run, tally: &Arc<Tally>, handle: F) -> anyhow::Result<()>
where
    F: Fn(Message, Hand) -> W + Clone + Send + Sync + 'static,
    W: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let mut loops = JoinSet::new();
    match run.broker {
        BrokerKind::Memory => {
            let (broker, forgotten) = (feed::broker(run.seed), Arc::new(Forgotten::open(&run.folder)?));
            for source in SOURCES {
                for _ in 0..CONCURRENCY {
                    loops.spawn(memory(broker.open(source).await?, Arc::clone(&forgotten), handle.clone()));
                }
            }
            feed::feed(&run.folder, &broker, tally).await?;
        }
        BrokerKind::Nats | BrokerKind::Sqs | BrokerKind::Rabbitmq => {
            for source in SOURCES {
                for _ in 0..CONCURRENCY {
                    loops.spawn(server(run.broker, run.broker_url.clone(), source, handle.clone()));
                }
            }
        }
    }
    while loops.join_next().await.transpose()?.transpose()?.is_some() {}
    Ok(())
}

async fn memory<F, W>(mut source: MemorySource, forgotten: Arc<Forgotten>, handle: F) -> anyhow::Result<()>
where
    F: Fn(Message, Hand) -> W,
    W: Future<Output = anyhow::Result<()>>,
{
    let settler = source.settler();
    while let Ok(deliveries) = source.receive(1).await {
        for Incoming { received, token, .. } in deliveries {
            let message: Message = serde_json::from_slice(&received.body)?;
            let (settler, forgotten) = (settler.clone(), Arc::clone(&forgotten));
            let hand = Hand::Memory { settler, token, id: message.id, forgotten };
            if let Err(error) = handle(message, hand).await {
                eprintln!("{error:#}");
            }
        }
    }
    Ok(())
}

/// Ends with its process.
async fn server<F, W>(broker: BrokerKind, url: String, source: &'static str, handle: F) -> anyhow::Result<()>
where
    F: Fn(Message, Hand) -> W,
    W: Future<Output = anyhow::Result<()>>,
{
    loop {
        if let Err(error) = connection(broker, &url, source, &handle).await {
            eprintln!("{error:#}");
            sleep(Duration::from_millis(200)).await;
        }
    }
}

/// Handles messages until the connection ends.
async fn connection<F, W>(broker: BrokerKind, url: &str, source: &'static str, handle: F) -> anyhow::Result<()>
where
    F: Fn(Message, Hand) -> W,
    W: Future<Output = anyhow::Result<()>>,
{
    let client = Arc::new(Mutex::new(Client::connect(broker, url).await?));
    loop {
        let Some(delivery) = client.lock().await.next(source).await? else { continue };
        let hand = Hand::Server { client: Arc::clone(&client), source, receipt: delivery.receipt };
        if let Err(error) = handle(serde_json::from_slice(&delivery.body)?, hand).await {
            eprintln!("{error:#}");
        }
    }
}
