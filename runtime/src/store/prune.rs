//! Pruning: rows older than the retention go, in batches that hold the writer for a moment only.

use std::fmt::Write as _;
use std::time::Duration;

use super::value::hex;
use super::{ConsumerId, Inbox, Store, Value, clock};
use crate::error::Error;

/// Rows looked at in one transaction.
const BATCH: i64 = 500;

/// How long another process leaves a consumer alone whose pruner may have died.
const LEASE: Duration = Duration::from_mins(1);

/// What a pruning removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pruned {
    /// Rows of handled messages.
    pub rows: u64,
    /// Dead letters that were done or discarded.
    pub letters: u64,
    /// Whether another process is at it, and nothing was done here.
    pub busy: bool,
}

impl<Db: Store> Inbox<Db> {
    /// Removes a consumer's rows older than the retention by the database's clock, in small batches. A message delivered
    /// again after its row is gone would run again, so the retention must outlive every replay. Keys with an open dead
    /// letter stay.
    pub async fn prune(&self, consumer: ConsumerId, retention: Duration) -> Result<Pruned, Error> {
        let mut pruned = Pruned::default();
        let Some(now) = self.take_turn(consumer).await? else {
            return Ok(Pruned { busy: true, ..pruned });
        };
        let cutoff = now.saturating_sub(clock::microseconds(retention));
        let mut after = None;
        loop {
            let until = self.slice_end(consumer, after.clone()).await?;
            pruned.rows += self.prune_slice(consumer, cutoff, after, until.clone()).await?;
            if until.is_none() {
                break;
            }
            after = until;
            tokio::task::yield_now().await;
        }
        loop {
            let letters = self.prune_letters(consumer, cutoff).await?;
            pruned.letters += letters;
            if letters < BATCH.unsigned_abs() {
                break;
            }
            tokio::task::yield_now().await;
        }
        self.end_turn(consumer, cutoff).await?;
        Ok(pruned)
    }

    /// Takes the consumer's pruning for this process, unless another holds it, and answers the database's time.
    async fn take_turn(&self, consumer: ConsumerId) -> Result<Option<i64>, Error> {
        self.write(move |inbox, connection| {
            Box::pin(async move {
                let held = format!("SELECT {{now}}, pruned_at FROM {{consumers}} WHERE id = ?{}", Db::FOR_UPDATE);
                let rows = inbox.run(connection, &held, vec![consumer.into()]).await?;
                let Some(row) = rows.first() else { return Ok(None) };
                let (now, held_until) = (row.int(0)?, row.int(1)?);
                if held_until > now {
                    return Ok(None);
                }
                let take = "UPDATE {consumers} SET pruned_at = ? WHERE id = ?";
                let until = now.saturating_add(clock::microseconds(LEASE));
                inbox.run(connection, take, vec![until.into(), consumer.into()]).await?;
                Ok(Some(now))
            })
        })
        .await
    }

    /// The last key of the slice that begins after this one, or at the first; `None` at the end.
    async fn slice_end(&self, consumer: ConsumerId, after: Option<Value>) -> Result<Option<Value>, Error> {
        let from = if after.is_some() { "AND message_key > ? " } else { "" };
        let end =
            format!("SELECT message_key FROM {{inbox}} WHERE consumer = ? {from}ORDER BY message_key LIMIT 1 OFFSET ?");
        let mut arguments = vec![consumer.into()];
        arguments.extend(after);
        arguments.push((BATCH - 1).into());
        let rows = self.read(&end, arguments).await?;
        Ok(rows.into_iter().next().and_then(|row| row.0.into_iter().next()))
    }

    async fn prune_slice(
        &self,
        consumer: ConsumerId,
        cutoff: i64,
        after: Option<Value>,
        until: Option<Value>,
    ) -> Result<u64, Error> {
        let from = if after.is_some() { " AND message_key > ?" } else { "" };
        let up_to = if until.is_some() { " AND message_key <= ?" } else { "" };
        let expired = format!(
            "FROM {{inbox}} WHERE consumer = ? AND received_at < ?{from}{up_to} \
             AND NOT EXISTS (SELECT 1 FROM {{dead_letters}} AS letter WHERE letter.consumer = {{inbox}}.consumer \
             AND letter.message_key = {{inbox}}.message_key AND letter.state IN ('open', 'redrive'))"
        );
        let arguments = move || {
            let bounds = [after.clone(), until.clone()];
            [consumer.into(), cutoff.into()].into_iter().chain(bounds.into_iter().flatten()).collect::<Vec<_>>()
        };
        let count = format!("SELECT COUNT(*) {expired}");
        // Looked at without the writer first: most slices have nothing to prune.
        if self.read(&count, arguments()).await?.first().ok_or(sqlx::Error::RowNotFound)?.int(0)? == 0 {
            return Ok(0);
        }
        self.write(move |inbox, connection| {
            Box::pin(async move {
                let rows = if Db::DELETE_WAITS {
                    delete_by_key(&inbox, connection, consumer, &expired, arguments()).await?
                } else {
                    let rows = inbox.run(connection, &count, arguments()).await?;
                    inbox.run(connection, &format!("DELETE {expired}"), arguments()).await?;
                    rows.first().ok_or(sqlx::Error::RowNotFound)?.int(0)?.unsigned_abs()
                };
                let renew = "UPDATE {consumers} SET pruned_at = {now} + ? WHERE id = ?";
                inbox.run(connection, renew, vec![clock::microseconds(LEASE).into(), consumer.into()]).await?;
                Ok(rows)
            })
        })
        .await
    }

    async fn prune_letters(&self, consumer: ConsumerId, cutoff: i64) -> Result<u64, Error> {
        self.write(move |inbox, connection| {
            Box::pin(async move {
                let find = "SELECT id FROM {dead_letters} WHERE consumer = ? AND state IN ('done', 'discarded') \
                            AND updated_at < ? ORDER BY id LIMIT ?";
                let rows = inbox.run(connection, find, vec![consumer.into(), cutoff.into(), BATCH.into()]).await?;
                for row in &rows {
                    let delete = "DELETE FROM {dead_letters} WHERE id = ?";
                    inbox.run(connection, delete, vec![row.int(0)?.into()]).await?;
                }
                Ok(rows.len() as u64)
            })
        })
        .await
    }

    /// Removes the attempts of keys that never came again, and gives the turn back.
    async fn end_turn(&self, consumer: ConsumerId, cutoff: i64) -> Result<(), Error> {
        self.write(move |inbox, connection| {
            Box::pin(async move {
                let orphans = "DELETE FROM {attempts} WHERE consumer = ? AND updated_at < ? \
                     AND NOT EXISTS (SELECT 1 FROM {dead_letters} AS letter WHERE letter.consumer = {attempts}.consumer \
                     AND letter.message_key = {attempts}.message_key AND letter.state IN ('open', 'redrive'))";
                inbox.run(connection, orphans, vec![consumer.into(), cutoff.into()]).await?;
                let done = "UPDATE {consumers} SET pruned_at = {now} WHERE id = ?";
                inbox.run(connection, done, vec![consumer.into()]).await?;
                Ok(())
            })
        })
        .await
    }
}

/// Removes the rows by their keys, for a database whose DELETE would wait for each open claim that it passes.
async fn delete_by_key<Db: Store>(
    inbox: &Inbox<Db>,
    connection: &mut Db::Connection,
    consumer: ConsumerId,
    expired: &str,
    arguments: Vec<Value>,
) -> Result<u64, Error> {
    let rows = inbox.run(connection, &format!("SELECT message_key {expired}"), arguments).await?;
    // A statement for each, in one round trip: for a list of keys the server would read past rows of others.
    let mut deletes = String::with_capacity(rows.len() * 128);
    for row in &rows {
        let key = hex(row.bytes(0)?);
        let _ = write!(deletes, "DELETE FROM {{inbox}} WHERE consumer = {} AND message_key = X'{key}'; ", consumer.0);
    }
    if !deletes.is_empty() {
        inbox.run(connection, &deletes, Vec::new()).await?;
    }
    Ok(rows.len() as u64)
}
