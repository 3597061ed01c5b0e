//! The texts of the two round trips that the inbox adds to a message: begin and claim, and the checked commit.

use std::fmt::Write as _;
use std::time::Duration;

use super::transaction::Marker;
use crate::error::Error;
use crate::key::Key;
use crate::store::{Claim, ConsumerId, Inbox, Limits};
use sqlx::MySql;

/// The longest time that every setting takes, in seconds.
const LONGEST: u64 = 31_536_000;

/// Seconds that an idle session outlives its limit: its own process should end it first.
const IDLE_MARGIN: u64 = 10;

/// The session's settings as they were before, and the lock by which others find the session.
const RESTORE: &str = "SET innodb_lock_wait_timeout = @inboxed_wait, wait_timeout = @inboxed_idle \
    /*M!100100 , max_statement_time = @inboxed_limit */, @inboxed_lock = RELEASE_LOCK('";

/// The parts of the texts that are the same for each message of an inbox.
#[derive(Debug)]
pub(super) struct Batches {
    insert_one: String,
    insert_many: String,
    unchanged: String,
    select_prior: String,
    select_held: String,
    now: &'static str,
    /// What a key's literal begins with.
    quote: &'static str,
}

impl Batches {
    pub(super) fn new(inbox: &Inbox<MySql>) -> Self {
        Self {
            insert_one: inbox.sql("; INSERT INTO {inbox} (consumer, message_key, received_at, payload) VALUES ("),
            insert_many: inbox.sql("INSERT INTO {inbox} (consumer, message_key, received_at, payload, claim) VALUES "),
            unchanged: inbox.sql(" ON DUPLICATE KEY UPDATE consumer = {inbox}.consumer"),
            // An overflow, and so an error, if there is a row: begin's answer carries no rows.
            select_prior: inbox
                .sql("; SELECT failures + 9223372036854775807 + 1 FROM {attempts} WHERE (consumer, message_key) = ("),
            select_held: inbox.sql(
                " AS ours, attempt.failures, attempt.starts FROM {inbox} AS held LEFT JOIN {attempts} AS attempt \
                 ON attempt.consumer = held.consumer AND attempt.message_key = held.message_key WHERE ",
            ),
            now: <MySql as crate::store::Store>::NOW,
            quote: if inbox.is_lean() { "X'" } else { "'" },
        }
    }

    /// Begins, with limits that outlive neither the transaction nor its connection.
    ///
    /// A body must never meet a lock timeout: it undoes one statement only, and a body that swallows it would commit the
    /// rest. So the wait is as long as the body may run, and the deadline ends both.
    pub(super) fn begin(marker: Marker, limits: Limits) -> String {
        let run = limits.run.as_secs().saturating_add(1).min(LONGEST - IDLE_MARGIN);
        let (wait, idle) = (run + 1, run + IDLE_MARGIN);
        let exact = limits.run.clamp(Duration::from_millis(1), Duration::from_secs(run)).as_secs_f64();
        let mut sql = String::with_capacity(1_024);
        let _ = write!(
            sql,
            "SET @inboxed_wait = @@innodb_lock_wait_timeout, innodb_lock_wait_timeout = {wait}, \
             @inboxed_idle = @@wait_timeout, wait_timeout = {idle} \
             /*M!100100 , @inboxed_limit = @@max_statement_time, max_statement_time = {exact} */, \
             @inboxed_lock = GET_LOCK('{marker}', 0); \
             SET TRANSACTION ISOLATION LEVEL READ COMMITTED; XA START '{marker}'"
        );
        sql
    }

    /// Begins and claims one key: the whole of a message's first round trip.
    ///
    /// The attempts are looked at after the claim, so that what a copy recorded before it gave the key up is seen.
    pub(super) fn begin_and_claim(&self, marker: Marker, limits: Limits, claim: &Claim) -> Result<String, Error> {
        let key = claim.identity.name();
        let mut sql = Self::begin(marker, limits);
        sql.push_str(&self.insert_one);
        self.name(&mut sql, claim.consumer, key)?;
        let _ = write!(sql, ", {}, {})", self.now, claim.stored_payload());
        sql.push_str(&self.select_prior);
        self.name(&mut sql, claim.consumer, key)?;
        sql.push_str("); ");
        sql.push_str(SAVEPOINT);
        Ok(sql)
    }

    /// Inserts the rows that nobody holds, and reads all of them: `ours` tells which were inserted here.
    pub(super) fn claim_many(&self, marker: Marker, rows: &[(ConsumerId, &Key, i64)]) -> Result<String, Error> {
        let claim = marker.claim();
        let mut sql = String::with_capacity(256 + rows.len() * 200);
        sql.push_str(&self.insert_many);
        for (index, (consumer, key, payload)) in rows.iter().enumerate() {
            sql.push_str(if index == 0 { "(" } else { ", (" });
            self.name(&mut sql, *consumer, key)?;
            let _ = write!(sql, ", {}, {payload}, {claim})", self.now);
        }
        sql.push_str(&self.unchanged);
        let _ = write!(sql, "; SELECT held.consumer, held.message_key, held.payload, held.claim <=> {claim}");
        sql.push_str(&self.select_held);
        // One range for each consumer: not every server uses the index for a list of pairs.
        for (index, same) in rows.chunk_by(|one, next| one.0 == next.0).enumerate() {
            let Some((ConsumerId(consumer), ..)) = same.first() else { continue };
            let or = if index == 0 { "" } else { " OR " };
            let _ = write!(sql, "{or}held.consumer = {consumer} AND held.message_key IN (");
            for (index, (_, key, _)) in same.iter().enumerate() {
                sql.push_str(if index == 0 { "" } else { ", " });
                self.quote(&mut sql, key)?;
            }
            sql.push(')');
        }
        Ok(sql)
    }

    /// The checked commit: the savepoint is there only if the transaction is the one that was begun.
    pub(super) fn commit(marker: Marker) -> String {
        format!("RELEASE SAVEPOINT inboxed; XA END '{marker}'; XA COMMIT '{marker}' ONE PHASE; {RESTORE}{marker}')")
    }

    /// How many answers [`Batches::commit`] gives until the transaction is committed.
    pub(super) const COMMITTED: usize = 3;

    /// Ends the transaction's statements, without a decision.
    pub(super) fn end(marker: Marker) -> String {
        format!("XA END '{marker}'")
    }

    pub(super) fn rollback(marker: Marker) -> String {
        format!("XA ROLLBACK '{marker}'")
    }

    /// Gives the session back as it was.
    pub(super) fn restore(marker: Marker) -> String {
        format!("{RESTORE}{marker}')")
    }

    fn name(&self, sql: &mut String, ConsumerId(consumer): ConsumerId, key: &Key) -> Result<(), Error> {
        let _ = write!(sql, "{consumer}, ");
        self.quote(sql, key)
    }

    /// Writes a key as a literal. Its alphabet has neither quotes nor backslashes, which is checked again here.
    fn quote(&self, sql: &mut String, key: &Key) -> Result<(), Error> {
        let key = key.as_str();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/%#".contains(&byte);
        if !key.bytes().all(plain) {
            return Err(Error::from("a key with a character outside of its alphabet was not sent to the database"));
        }
        sql.push_str(self.quote);
        sql.push_str(key);
        sql.push('\'');
        Ok(())
    }
}

pub(super) const SAVEPOINT: &str = "SAVEPOINT inboxed";
