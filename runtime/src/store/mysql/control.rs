//! Ending another session: the server goes on with a statement whose client has gone, and keeps its locks.

use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, MySqlConnection, Row as _};

use super::lanes::Marker;

/// How long a session may take to roll back before it is left to do so alone.
const PATIENCE: Duration = Duration::from_secs(10);

/// Ends the session of a lane when it is dropped, unless it was disarmed.
#[derive(Debug)]
pub(super) struct Ending {
    options: Arc<MySqlConnectOptions>,
    marker: Option<Marker>,
}

impl Ending {
    pub(super) fn new(options: Arc<MySqlConnectOptions>, marker: Marker) -> Self {
        Self { options, marker: Some(marker) }
    }

    pub(super) fn disarm(&mut self) {
        self.marker = None;
    }

    /// Ends the session and waits until it has rolled back.
    pub(super) async fn end(mut self) {
        if let Some(marker) = self.marker.take() {
            // Connecting takes much room, which every transaction would carry.
            Box::pin(end_session(&self.options, marker)).await;
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        let Some(marker) = self.marker.take() else { return };
        // Without a runtime the closed socket has to do, which the server notices between two statements.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let options = Arc::clone(&self.options);
            runtime.spawn(async move { end_session(&options, marker).await });
        }
    }
}

/// Ends the session that holds this marker and waits until it has rolled back. No right is needed for the user's own
/// sessions. An unreachable server ends them itself, by its limit on idle transactions.
async fn end_session(options: &MySqlConnectOptions, marker: Marker) {
    match tokio::time::timeout(PATIENCE, kill(options, marker)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "a session that outlived its message couldn't be ended"),
        Err(_) => tracing::warn!("a session that outlived its message is still rolling back"),
    }
}

async fn kill(options: &MySqlConnectOptions, marker: Marker) -> Result<(), sqlx::Error> {
    let mut control = MySqlConnection::connect_with(options).await?;
    let holder = format!("SELECT IS_USED_LOCK('{marker}')");
    let mut pause = Duration::from_millis(2);
    loop {
        // The lock goes last, after the rollback.
        let row = sqlx::raw_sql(AssertSqlSafe(holder.as_str())).fetch_one(&mut control).await?;
        let Some(session) = row.try_get_unchecked::<Option<i64>, _>(0)? else { break };
        // Fails if the session ended by itself meanwhile.
        let _ = sqlx::raw_sql(AssertSqlSafe(format!("KILL CONNECTION {session}"))).execute(&mut control).await;
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_millis(100));
    }
    control.close().await
}
