//! The producer: it promises in its ledger, then publishes, some messages twice, as fast as the supervisor lets it.

use std::fs::File;
use std::io::Write as _;
use std::time::Duration;

use anyhow::Context as _;

use crate::arguments::{BrokerKind, Run};
use crate::client::Client;
use crate::feed::{END, QUEUE};
use crate::ledger::{Ledger, Message};
use crate::tally::{Mark, Tally};

/// Messages that go out together, and how often: 500 in a second, so that there is load while things happen.
const TOGETHER: i64 = 20;
const EVERY: Duration = Duration::from_millis(40);

/// How soon a publication is tried again.
const AGAIN: Duration = Duration::from_millis(100);

/// What the publisher says when everything is published.
pub(crate) const PUBLISHED: &str = "published";

/// Publishes up to the number on each line of its standard input.
pub(crate) async fn publish(run: Run) -> anyhow::Result<()> {
    let mut rng = fastrand::Rng::with_seed(run.seed);
    let (mut ledger, tally) = (Ledger::create(&run.folder)?, Tally::open(&run.folder)?);
    let mut outlet = Outlet::open(&run)?;
    let (mut next, all) = (0, i64::try_from(run.messages)?);
    let mut later = Vec::new();
    for line in std::io::stdin().lines() {
        let granted = line?.parse::<i64>().context("a number of messages")?.min(all);
        while next < granted {
            let end = granted.min(next + TOGETHER);
            let messages = (next..end).map(|id| Message::by_chance(id, &mut rng)).collect::<Vec<_>>();
            next = end;
            ledger.promise(&messages)?;
            let mut publications = std::mem::take(&mut later);
            for message in messages {
                publications.push((Mark::Published, message.clone()));
                if rng.f64() < run.duplicates {
                    // At once, so that two copies meet in the consumers, or with those that come next.
                    let again = if rng.bool() { &mut publications } else { &mut later };
                    again.push((Mark::Republished, message));
                }
            }
            outlet.publish(&publications, &tally).await?;
            tokio::time::sleep(EVERY).await;
        }
        if next == all {
            outlet.publish(&std::mem::take(&mut later), &tally).await?;
            outlet.end()?;
            println!("{PUBLISHED}");
        }
    }
    Ok(())
}

/// Where messages go.
enum Outlet {
    /// A file, for a broker that doesn't outlive its consumer.
    Queue(File),
    Server {
        broker: BrokerKind,
        url: String,
        client: Option<Client>,
    },
}

impl Outlet {
    fn open(run: &Run) -> anyhow::Result<Self> {
        match run.broker {
            BrokerKind::Memory => Ok(Self::Queue(File::create_new(run.folder.join(QUEUE)).context("the queue")?)),
            broker @ (BrokerKind::Nats | BrokerKind::Sqs | BrokerKind::Rabbitmq) => {
                Ok(Self::Server { broker, url: run.broker_url.clone(), client: None })
            }
        }
    }

    async fn publish(&mut self, publications: &[(Mark, Message)], tally: &Tally) -> anyhow::Result<()> {
        for (mark, _) in publications {
            tally.note(*mark);
        }
        let mut left = publications.iter().map(|(_, message)| message.clone()).collect::<Vec<_>>();
        match self {
            Self::Queue(file) => {
                for message in left {
                    file.write_all(format!("{}\n", message.body()?).as_bytes())?;
                }
            }
            // What became of the rest isn't known after an error, so that it may be there twice now.
            Self::Server { broker, url, client } => {
                while let Err(error) = publish_once(*broker, url, client, &mut left).await {
                    eprintln!("{} messages are left: {error:#}", left.len());
                    // Where nobody was reached, nothing was sent.
                    if client.take().is_some() {
                        tally.note_times(Mark::Retried, left.len());
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
        Ok(())
    }

    /// Says that nothing more will come, where consumers have to know.
    fn end(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Queue(file) => Ok(writeln!(file, "{END}")?),
            Self::Server { .. } => Ok(()),
        }
    }
}

async fn publish_once(
    broker: BrokerKind,
    url: &str,
    client: &mut Option<Client>,
    left: &mut Vec<Message>,
) -> anyhow::Result<()> {
    let client = match client {
        Some(client) => client,
        None => client.insert(Client::connect(broker, url).await?),
    };
    client.publish(left).await
}
