//! A consumer process.

use std::sync::Arc;

use anyhow::Context as _;
use inboxed::Consumer;
use inboxed::store::Store;

use crate::arguments::{BrokerKind, Database, Run};
use crate::fault::Faults;
use crate::tally::{Tally, ToTally};
use crate::{feed, mysql, postgres, sqlite};

/// How many messages of each source a process handles at once.
pub(crate) const CONCURRENCY: usize = 8;

pub(crate) async fn consume(run: Run) -> anyhow::Result<()> {
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
            let running = app.run(broker.clone());
            tokio::try_join!(async { Ok(running.await?) }, feed::feed(&run.folder, &broker, &tally))?;
            Ok(())
        }
    }
}
