//! The texts of the two round trips that the inbox adds to a message: begin and claim, and the checked commit.
//!
//! On `MariaDB` two prepared statements stand for several each, which then cost one answer: every answer is a packet of
//! its own, for which the server enters its kernel and wakes this side up. `MySQL` has no such statements and is sent the
//! same ones in full.

use std::fmt::Write as _;
use std::time::Duration;

use super::lanes::{Dialect, Marker, Session};
use crate::error::Error;
use crate::key::Key;
use crate::store::{Claim, ConsumerId, Inbox, Limits, Store};
use sqlx::MySql;

/// The longest time that every setting takes, in seconds.
const LONGEST: u64 = 31_536_000;

/// How much longer than the pipeline's own deadline the server lets a statement run: a body that swallows the server's
/// error would commit the rest, and the pipeline's deadline ends the body itself.
const GRACE: Duration = Duration::from_millis(250);

/// Seconds that an idle transaction outlives its limit: its own process should end it first.
const IDLE_MARGIN: u64 = 2;

/// The parts of the texts that are the same for each message of an inbox.
#[derive(Debug)]
pub(super) struct Batches {
    insert_one: String,
    insert_many: String,
    unchanged: String,
    touch_prior: String,
    select_held: String,
    /// What a key's literal begins with.
    quote: &'static str,
}

/// The time limits of a transaction, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Times {
    /// Of a statement.
    statement: f64,
    /// Of a wait for a lock. A body must never meet a lock timeout: it undoes one statement only, and a body that swallows
    /// it would commit the rest. So the wait is as long as the body may run, and the deadline ends both.
    lock: u64,
    /// Between two statements.
    idle: u64,
}

impl Times {
    pub(super) fn of(limits: Limits) -> Self {
        let run = limits.run.as_secs().saturating_add(1).min(LONGEST - IDLE_MARGIN);
        let statement = limits.run.saturating_add(GRACE).min(Duration::from_secs(LONGEST)).as_secs_f64();
        Self { statement, lock: run + 1, idle: run + IDLE_MARGIN }
    }

    pub(super) fn idle(self) -> Duration {
        Duration::from_secs(self.idle)
    }

    /// Sets them for the session.
    pub(super) fn set(self, dialect: Dialect) -> String {
        let Self { statement, lock, idle } = self;
        let others = match dialect {
            Dialect::MariaDb => format!("max_statement_time = {statement}, idle_transaction_timeout = {idle}"),
            Dialect::MySql => format!("wait_timeout = {idle}"),
        };
        format!("SET innodb_lock_wait_timeout = {lock}, {others}")
    }
}

impl Batches {
    pub(super) fn new(inbox: &Inbox<MySql>) -> Self {
        Self {
            insert_one: inbox.sql("INSERT INTO {inbox} (consumer, message_key, received_at, payload) VALUES "),
            insert_many: inbox.sql("INSERT INTO {inbox} (consumer, message_key, received_at, payload, claim) VALUES "),
            unchanged: inbox.sql(" ON DUPLICATE KEY UPDATE consumer = {inbox}.consumer"),
            // It changes nothing. That it finds a row is told by the number of rows, without an answer of its own.
            touch_prior: inbox.sql("UPDATE {attempts} SET failures = failures WHERE consumer = "),
            select_held: inbox.sql(
                " AS ours, attempt.failures, attempt.starts FROM {inbox} AS held LEFT JOIN {attempts} AS attempt \
                 ON attempt.consumer = held.consumer AND attempt.message_key = held.message_key WHERE ",
            ),
            quote: if inbox.is_lean() { "X'" } else { "'" },
        }
    }

    /// Ends the transaction by which sqlx was made to count one, settles the session, and asks who it is.
    pub(super) fn prime(marker: Marker) -> String {
        format!(
            "ROLLBACK; SET autocommit = 1; SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; \
             SELECT VERSION(), DATABASE(), GET_LOCK('{marker}', 0)"
        )
    }

    /// Begin and claim as one statement, for a session of `MariaDB`. `@inboxed_home` is what the last commit found.
    pub(super) fn claim_as_one(&self, marker: Marker) -> String {
        let mut claim = format!("BEGIN NOT ATOMIC XA START '{marker}'; ");
        self.write_claim(&mut claim, ["?", "?", "IF(@inboxed_home, ?, NULL)", "?", "?"]);
        claim.push_str("; END");
        claim
    }

    /// Prepares the checked commit as one statement, for a session of `MariaDB`.
    pub(super) fn prepare_commit(marker: Marker) -> String {
        let commit = Self::end_and_commit(marker).replace('\'', "''");
        format!(
            "SET @inboxed_home = TRUE; \
             PREPARE inboxed_commit FROM 'BEGIN NOT ATOMIC SET @inboxed_home = ?; {commit}; END'"
        )
    }

    /// Whether the session's database is this one. In hexadecimal digits, whatever characters a name may have.
    pub(super) fn is_home(database: Option<&str>) -> String {
        let mut sql = String::from("DATABASE() <=> ");
        match database {
            Some(database) => {
                sql.push_str("X'");
                for byte in database.bytes() {
                    let _ = write!(sql, "{byte:02x}");
                }
                sql.push('\'');
            }
            None => sql.push_str("NULL"),
        }
        sql
    }

    /// Begins without a claim, or before claims that come as a statement of their own.
    pub(super) fn begin(session: &Session) -> String {
        format!("{}; XA START '{}'", Self::go_home(session), session.marker)
    }

    /// Begins and claims one key, in full. As `claim_as_one` does it.
    pub(super) fn begin_and_claim(&self, session: &Session, claim: &Claim) -> Result<String, Error> {
        let mut key = String::with_capacity(64);
        self.quote(&mut key, claim.identity.name())?;
        let (consumer, payload) =
            (claim.consumer.0.to_string(), format!("IF({}, {}, NULL)", session.is_home, claim.stored_payload()));
        let mut sql = format!("XA START '{}'; ", session.marker);
        self.write_claim(&mut sql, [&consumer, &key, &payload, &consumer, &key]);
        Ok(sql)
    }

    /// The number of rows is 1, or 2 if earlier attempts left something behind, which is looked at after the claim: so
    /// what a copy recorded before it gave the key up is seen. Error 1048 says that an earlier body has left the session
    /// in another database.
    fn write_claim(&self, sql: &mut String, [consumer, key, payload, of_consumer, of_key]: [&str; 5]) {
        let (insert, touch, now) = (&self.insert_one, &self.touch_prior, MySql::NOW);
        let _ = write!(
            sql,
            "{insert}({consumer}, {key}, {now}, {payload}); {touch}{of_consumer} AND message_key = {of_key}; {SAVEPOINT}"
        );
    }

    /// Inserts the rows that nobody holds, and reads all of them: `ours` tells which were inserted here.
    pub(super) fn claim_many(&self, claim: i64, rows: &[(ConsumerId, &Key, i64)]) -> Result<String, Error> {
        let mut sql = String::with_capacity(256 + rows.len() * 200);
        sql.push_str(&self.insert_many);
        for (index, (consumer, key, payload)) in rows.iter().enumerate() {
            sql.push_str(if index == 0 { "(" } else { ", (" });
            self.name(&mut sql, *consumer, key)?;
            let _ = write!(sql, ", {}, {payload}, {claim})", MySql::NOW);
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
    pub(super) fn commit(session: &Session) -> String {
        match session.dialect {
            // Only here the session's database can be seen: what is prepared runs in the one that it was prepared in.
            Dialect::MariaDb => format!("EXECUTE inboxed_commit USING {}", session.is_home),
            Dialect::MySql => Self::end_and_commit(session.marker),
        }
    }

    fn end_and_commit(marker: Marker) -> String {
        format!("RELEASE SAVEPOINT inboxed; XA END '{marker}'; XA COMMIT '{marker}' ONE PHASE")
    }

    /// Ends the transaction's statements, without a decision.
    pub(super) fn end(marker: Marker) -> String {
        format!("XA END '{marker}'")
    }

    pub(super) fn rollback(marker: Marker) -> String {
        format!("XA ROLLBACK '{marker}'")
    }

    /// Takes back a transaction that has begun in another database, and returns to the session's own.
    pub(super) fn start_again(session: &Session) -> String {
        let (end, rollback, home) = (Self::end(session.marker), Self::rollback(session.marker), Self::go_home(session));
        format!("{end}; {rollback}; {home}")
    }

    /// Notes for the next claim whether a body has left the session's own database.
    pub(super) fn look_for_home(session: &Session) -> String {
        format!("SET @inboxed_home = {}", session.is_home)
    }

    /// Returns to the session's own database, whatever a body has done.
    pub(super) fn go_home(session: &Session) -> String {
        match &session.database {
            Some(database) => format!("USE `{}`; SET @inboxed_home = TRUE", database.replace('`', "``")),
            None => "SET @inboxed_home = TRUE".to_owned(),
        }
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
