//! What a consumer written by hand does to a broker: receive and acknowledge, on nobody's proof.

use std::sync::Arc;

use inboxed::broker::{Incoming, Source as _, Transport as _};
use inboxed::memory::{MemorySettler, MemorySource, MemoryToken};
use tokio::task::JoinSet;

use crate::arguments::{BrokerKind, Run};
use crate::consumer::CONCURRENCY;
use crate::feed;
use crate::ledger::{Message, SOURCES};
use crate::tally::Tally;

/// The settling half of a source.
#[derive(Clone)]
pub(crate) enum Hand {
    Memory(MemorySettler),
}

/// What acknowledges a delivery.
pub(crate) enum Token {
    Memory(MemoryToken),
}

impl Hand {
    pub(crate) async fn acknowledge(&self, token: Token) -> anyhow::Result<()> {
        match (self, token) {
            (Self::Memory(settler), Token::Memory(token)) => settler.acknowledge_without_proof(token),
        };
        Ok(())
    }
}

/// Hands every delivery to the loop's body, several at once. A failure is left to the lease.
pub(crate) async fn work<F, W>(run: &Run, tally: &Arc<Tally>, handle: F) -> anyhow::Result<()>
where
    F: Fn(Hand, Message, Token) -> W + Clone + Send + Sync + 'static,
    W: Future<Output = anyhow::Result<()>> + Send + 'static,
{
    let mut loops = JoinSet::new();
    match run.broker {
        BrokerKind::Memory => {
            let broker = feed::broker(run.seed);
            for source in SOURCES {
                for _ in 0..CONCURRENCY {
                    loops.spawn(memory(broker.open(source).await?, handle.clone()));
                }
            }
            feed::feed(&run.folder, &broker, tally).await?;
        }
    }
    while loops.join_next().await.transpose()?.transpose()?.is_some() {}
    Ok(())
}

async fn memory<W>(mut source: MemorySource, handle: impl Fn(Hand, Message, Token) -> W) -> anyhow::Result<()>
where
    W: Future<Output = anyhow::Result<()>>,
{
    let settler = source.settler();
    while let Ok(deliveries) = source.receive(1).await {
        for Incoming { received, token } in deliveries {
            let message = serde_json::from_slice(&received.body)?;
            if let Err(error) = handle(Hand::Memory(settler.clone()), message, Token::Memory(token)).await {
                eprintln!("{error:#}");
            }
        }
    }
    Ok(())
}
