//! What earlier attempts left behind: a row for each key that failed, or that a process may have died of.

use super::dead_letters::{LetterId, key_identity};
use super::{Claim, Inbox, Row, Store};
use crate::error::Error;

/// The attempts that a key has had since it was new, or since its last redrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempts {
    /// The body's own failures, each recorded after its rollback.
    pub failures: u32,
    /// Starts of which no end was recorded: the process died, or still runs it.
    pub starts: u32,
}

impl Attempts {
    /// Reads two columns that stand beside each other.
    pub(crate) fn from_row(row: &Row, first: usize) -> Result<Self, sqlx::Error> {
        Ok(Self { failures: row.count(first)?, starts: row.count(first + 1)? })
    }
}

const LAST_ERROR_CHARACTERS: usize = 2_000;

/// An error's text as the tables keep it: without NUL, which not every database takes, and of bounded length.
pub(crate) fn storable(error: &str) -> String {
    error.chars().filter(|character| *character != '\0').take(LAST_ERROR_CHARACTERS).collect()
}

impl<Db: Store> Inbox<Db> {
    /// Records that the body failed, after its rollback, and answers the failures so far.
    pub(crate) async fn record_failure(&self, claim: &Claim, error: &str) -> Result<u32, Error> {
        let attempts = self.record(claim, (1, storable(error)), "{attempts}.failures + 1", "0").await?;
        Ok(attempts.failures)
    }

    /// Records that the body is about to start: the mark that stays if it kills the process.
    pub(crate) async fn mark_start(&self, claim: &Claim) -> Result<Attempts, Error> {
        self.record(claim, (0, String::new()), "{attempts}.failures", "{attempts}.starts + 1").await
    }

    /// Takes the start marks back: the body has ended, and what became of it isn't counted.
    pub(crate) async fn mark_end(&self, claim: &Claim) -> Result<(), Error> {
        let (consumer, key) = (claim.consumer, self.held_of(claim.identity.name()));
        self.write(move |inbox, connection| {
            Box::pin(async move {
                let arguments = || vec![consumer.into(), key.clone()];
                let end = "UPDATE {attempts} SET starts = 0, updated_at = {now} WHERE consumer = ? AND message_key = ?";
                inbox.run(connection, end, arguments()).await?;
                let tidy = "DELETE FROM {attempts} WHERE consumer = ? AND message_key = ? AND failures = 0 \
                     AND NOT EXISTS (SELECT 1 FROM {dead_letters} AS letter WHERE letter.consumer = {attempts}.consumer \
                     AND letter.message_key = {attempts}.message_key AND letter.state IN ('open', 'redrive'))";
                inbox.run(connection, tidy, arguments()).await?;
                Ok(())
            })
        })
        .await
    }

    /// The attempts of a key so far.
    pub(crate) async fn attempts(&self, claim: &Claim) -> Result<Attempts, Error> {
        let key = self.held_of(claim.identity.name());
        let rows = self.read(READ, vec![claim.consumer.into(), key]).await?;
        Ok(rows.first().map(|row| Attempts::from_row(row, 0)).transpose()?.unwrap_or_default())
    }

    /// Clears a key's past inside the transaction in which it succeeds: its attempts, its open letter, and the letter it
    /// was redriven from.
    pub(crate) async fn forget_failures(
        &self,
        connection: &mut Db::Connection,
        claim: &Claim,
        redriven: Option<LetterId>,
    ) -> Result<(), Error> {
        // The key before may have failed too, in a process that knows no other.
        for key in claim.keys() {
            let forget = "DELETE FROM {attempts} WHERE consumer = ? AND message_key = ?";
            self.run(connection, forget, vec![claim.consumer.into(), self.held_of(key)]).await?;
            let close = "UPDATE {dead_letters} SET state = 'done', redrive_at = NULL, updated_at = {now} \
                         WHERE consumer = ? AND identity = ? AND state IN ('open', 'redrive')";
            self.run(connection, close, vec![claim.consumer.into(), key_identity(key.as_str()).into()]).await?;
        }
        if let Some(letter) = redriven {
            self.mark_done(connection, letter).await?;
        }
        Ok(())
    }

    async fn record(
        &self,
        claim: &Claim,
        (failures, error): (u32, String),
        failures_then: &'static str,
        starts_then: &'static str,
    ) -> Result<Attempts, Error> {
        let (consumer, key) = (claim.consumer, claim.identity.name().clone());
        self.write(move |inbox, connection| {
            Box::pin(async move {
                let upsert = format!(
                    "INSERT INTO {{attempts}} (consumer, {{key_columns}}, failures, starts, last_error, updated_at) \
                     VALUES (?, {{key_places}}, ?, ?, ?, {{now}}) {} failures = {failures_then}, starts = {starts_then}, \
                     last_error = {}, updated_at = {}",
                    Db::on_conflict("consumer, message_key"),
                    Db::incoming("last_error"),
                    Db::incoming("updated_at"),
                );
                let mut arguments = vec![consumer.into()];
                arguments.extend(inbox.key_values(Some(&key)));
                arguments.extend([failures.into(), (1 - failures).into(), error.into()]);
                inbox.run(connection, &upsert, arguments).await?;
                let rows = inbox.run(connection, READ, vec![consumer.into(), inbox.held_of(&key)]).await?;
                Ok(Attempts::from_row(rows.first().ok_or(sqlx::Error::RowNotFound)?, 0)?)
            })
        })
        .await
    }
}

const READ: &str = "SELECT failures, starts FROM {attempts} WHERE consumer = ? AND message_key = ?";
