//! A consumer process.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use inboxed::store::{StartError, Store};
use inboxed::{Broker, ConnectError, Consumer, RunError};

use crate::arguments::{BrokerKind, Database, Run};
use crate::fault::Faults;
use crate::log::Log;
use crate::tally::{Tally, ToTally};
use crate::{feed, mysql, postgres, sqlite};

/// How many messages of each source a process handles at once.
pub(crate) const CONCURRENCY: usize = 8;

pub(crate) async fn consume(run: Run) -> anyhow::Result<()> {
    Log::begin();
    let tally = Arc::new(Tally::open(&run.folder)?);
    metrics::set_global_recorder(ToTally(Arc::clone(&tally))).ok().context("the counters are taken")?;
    let faults = Faults::from_supervisor(Arc::clone(&tally));
    match run.database {
        Database::Postgres => postgres::consume(&run, faults, tally).await,
        Database::Mysql => mysql::consume(&run, faults, tally).await,
        Database::Sqlite => sqlite::consume(&run, faults, tally).await,
    }
}

/// Runs a consumer as its users do, but for the points at which it may be killed.
pub(crate) async fn run_at<Db: Store, S>(
    app: Consumer<Db, S>,
    run: &Run,
    faults: Faults,
    tally: Arc<Tally>,
) -> anyhow::Result<()> {
    let app = app.on_fault_point(move |point| faults.reach(point));
    match run.broker {
        BrokerKind::Memory => {
            let broker = feed::broker(run.seed);
            let running = patiently(async || Ok(app.run(broker.clone()).await?));
            tokio::try_join!(running, feed::feed(&run.folder, &broker, &tally)).map(|_| ())
        }
        BrokerKind::Nats | BrokerKind::Sqs | BrokerKind::Rabbitmq => {
            patiently(async || Ok(app.run(Broker::connect(&run.broker_url).await?).await?)).await
        }
    }
}

/// Tries to start until the servers let it, as a process manager does: a cut may meet a process that is only starting.
/// What ends a consumer that runs is handed on.
pub(crate) async fn patiently<T>(mut start: impl AsyncFnMut() -> anyhow::Result<T>) -> anyhow::Result<T> {
    loop {
        let error = match start().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let is_start = matches!(error.downcast_ref(), Some(RunError::Start(_)))
            || error.is::<StartError>()
            || error.is::<ConnectError>();
        if !is_start {
            return Err(error);
        }
        eprintln!("not started: {error:#}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
