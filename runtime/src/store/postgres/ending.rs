//! The end of a transaction from outside: the server goes on with a statement whose client is gone, and keeps its locks.

use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use super::lanes::Lanes;

/// How long the server may take to end a session.
const PATIENCE: Duration = Duration::from_secs(2);

/// A server process, and since when it is ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Backend {
    process: i64,
    /// In microseconds since 1970, by which another's session or transaction under the same number is told apart.
    began: i64,
    since: Since,
}

/// What began then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    /// The session, which is the lane's.
    Session,
    /// The transaction: the session is a pooler's.
    Transaction,
}

impl Backend {
    /// Reads the two numbers that begin a row.
    pub(super) fn from_row(row: &PgRow, since: Since) -> Result<Self, sqlx::Error> {
        let row = super::row(row)?;
        Ok(Self { process: row.int(0)?, began: row.int(1)?, since })
    }
}

/// Ends the transaction when it is dropped, unless it was disarmed.
#[derive(Debug)]
pub(super) struct Ending {
    lanes: Arc<Lanes>,
    backend: Option<Backend>,
}

impl Ending {
    pub(super) fn new(lanes: Arc<Lanes>, backend: Backend) -> Self {
        Self { lanes, backend: Some(backend) }
    }

    pub(super) fn disarm(&mut self) {
        self.backend = None;
    }

    /// Ends the transaction and waits until its locks are free.
    pub(super) async fn end(mut self) {
        if let Some(backend) = self.backend.take() {
            // Connecting takes much room, which every transaction would carry.
            Box::pin(terminate(&self.lanes, backend)).await;
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let Some(backend) = self.backend.take() else { return };
        // Without a runtime the closed socket has to do, which the server notices between two statements.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let lanes = Arc::clone(&self.lanes);
            runtime.spawn(async move { terminate(&lanes, backend).await });
        }
    }
}

async fn terminate(lanes: &Lanes, backend: Backend) {
    let ended = tokio::time::timeout(PATIENCE, async {
        let mut control = lanes.control().await?;
        let end = format!(
            "SELECT pg_terminate_backend(pid, {}) FROM pg_stat_activity \
             WHERE pid = {} AND (extract(epoch FROM {}) * 1000000)::bigint = {}",
            PATIENCE.as_millis(),
            backend.process,
            match backend.since {
                Since::Session => "backend_start",
                Since::Transaction => "xact_start",
            },
            backend.began,
        );
        control.execute(AssertSqlSafe(end)).await?;
        control.close().await
    });
    match ended.await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a transaction is left to the server's own time limits"),
        Err(_) => tracing::debug!("a transaction is left to the server's own time limits"),
    }
}
