//! The claim: rows that no other transaction may hold, inserted before any body runs.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::time::Duration;

use sqlx::PgConnection;
use sqlx::Postgres;
use sqlx::postgres::PgRow;

use super::lanes::Session;
use super::literal;
use crate::error::{Class, Error};
use crate::store::attempts::Attempts;
use crate::store::{Claim, ConsumerId, Inbox, Limits, Row, Store as _, Verdict};

/// How much longer than the pipeline's own deadline the server lets a statement run: the pipeline's says more, and the
/// server's is for a process that is gone.
const GRACE: Duration = Duration::from_millis(250);

/// How much longer a transaction may stand idle in the middle.
const IDLE_GRACE: Duration = Duration::from_secs(2);

/// The texts that begin a transaction, made once for an inbox.
#[derive(Debug)]
pub(super) struct Statements {
    prepare: String,
    insert: String,
    on_conflict: String,
    on_conflict_alone: String,
}

/// The time limits of a transaction, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    statement: i32,
    idle: i32,
}

/// A key in its namespace.
type Name<'a> = (ConsumerId, &'a str);

impl Times {
    pub(super) fn of(limits: Limits) -> Self {
        let milliseconds = |grace| milliseconds(limits.run.saturating_add(grace));
        Self { statement: milliseconds(GRACE), idle: milliseconds(IDLE_GRACE) }
    }
}

impl Statements {
    pub(super) fn new(inbox: &Inbox<Postgres>) -> Self {
        let insert = inbox.sql("INSERT INTO {inbox} AS claimed (payload, consumer, message_key, received_at) VALUES ");
        let prior = inbox.sql(
            "(SELECT attempt.failures << 32 | attempt.starts FROM {attempts} AS attempt \
             WHERE attempt.consumer = claimed.consumer AND attempt.message_key = claimed.message_key)",
        );
        let on_conflict = " ON CONFLICT (consumer, message_key) DO NOTHING RETURNING ";
        let on_conflict_alone = format!("{on_conflict}{prior}");
        let on_conflict = format!("{on_conflict}consumer, message_key, {prior}");
        let prepare = format!(
            "PREPARE inboxed_claim(integer, integer, {}) AS {insert}($1, $2, $3, {}){on_conflict_alone}; ",
            if inbox.is_lean() { "uuid" } else { "text" },
            Postgres::NOW
        );
        Self { prepare, insert, on_conflict, on_conflict_alone }
    }

    /// BEGIN, the time limits, the claims and the savepoint, on a lane in this state.
    pub(super) fn begin(&self, claims: &[Claim], limits: Limits, session: &Session) -> Result<String, sqlx::Error> {
        let mut sql = String::with_capacity(1_024 + 96 * claims.len());
        sql.push_str("BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; ");
        let times = Times::of(limits);
        let Times { statement, idle } = times;
        if session.backend.is_none() {
            // Another client of the pooler may have left statements under the names that the body's will have.
            let _ = write!(
                sql,
                "DEALLOCATE ALL; SELECT pg_backend_pid(), (extract(epoch FROM now()) * 1000000)::bigint; \
                 SET LOCAL inboxed.guard = on; SET LOCAL statement_timeout = {statement}; \
                 SET LOCAL idle_in_transaction_session_timeout = {idle}; "
            );
        } else if session.times != Some(times) {
            let _ = write!(
                sql,
                "SET SESSION statement_timeout = {statement}; \
                 SET SESSION idle_in_transaction_session_timeout = {idle}; "
            );
        }
        if claims.is_empty() {
            sql.push_str(DURABLE);
        } else {
            let wait = limits.claim < limits.run;
            if wait {
                let _ = write!(sql, "SET LOCAL statement_timeout = {}; ", milliseconds(limits.claim));
            }
            match alone(claims) {
                Some(claim) => self.claim_alone(&mut sql, claim, session)?,
                None => self.claim_all(&mut sql, &rows(claims))?,
            }
            if wait {
                let _ = write!(sql, "SET LOCAL statement_timeout = {statement}; ");
            }
        }
        sql.push_str("SAVEPOINT inboxed");
        Ok(sql)
    }

    /// The usual message, by a prepared statement where there is a session.
    fn claim_alone(&self, sql: &mut String, claim: &Claim, session: &Session) -> Result<(), sqlx::Error> {
        let prepared = session.backend.is_some();
        if prepared && !session.prepared {
            sql.push_str(&self.prepare);
        }
        sql.push_str(if prepared { "EXECUTE inboxed_claim " } else { &self.insert });
        let now = if prepared { None } else { Some(Postgres::NOW) };
        row(sql, name(claim), claim.stored_payload(), now)?;
        if !prepared {
            sql.push_str(&self.on_conflict_alone);
        }
        sql.push_str("; ");
        Ok(())
    }

    /// The claims sorted bytewise, so that two groups can't wait for each other.
    fn claim_all(&self, sql: &mut String, rows: &BTreeMap<Name<'_>, i64>) -> Result<(), sqlx::Error> {
        sql.push_str(&self.insert);
        for (number, (name, payload)) in rows.iter().enumerate() {
            sql.push_str(if number == 0 { "" } else { ", " });
            row(sql, *name, *payload, Some(Postgres::NOW))?;
        }
        sql.push_str(&self.on_conflict);
        sql.push_str("; ");
        Ok(())
    }

    /// The lane's state after this beginning was committed.
    pub(super) fn after(claims: &[Claim], limits: Limits, session: &Session) -> Session {
        if session.backend.is_none() {
            return *session;
        }
        let prepared = session.prepared || alone(claims).is_some();
        Session { prepared, times: Some(Times::of(limits)), ..*session }
    }
}

/// What the guard does for a transaction that holds a claim. It answers no row: one would be taken for a claimed one.
const DURABLE: &str = "SELECT WHERE CASE WHEN current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') \
    THEN set_config('synchronous_commit', 'on', true) IS NULL END; ";

/// Postgres takes nought for no limit at all, and no more than a 32-bit number.
fn milliseconds(limit: Duration) -> i32 {
    i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).max(1)
}

fn name(claim: &Claim) -> Name<'_> {
    (claim.consumer, claim.identity.name().as_str())
}

fn names(claim: &Claim) -> impl Iterator<Item = Name<'_>> {
    claim.keys().map(|key| (claim.consumer, key.as_str()))
}

/// One message with one key, the usual case: its claim answers nothing but what earlier attempts left behind.
fn alone(claims: &[Claim]) -> Option<&Claim> {
    match claims {
        [claim] if claim.keys().count() == 1 => Some(claim),
        _ => None,
    }
}

/// The values of one claim.
fn row(sql: &mut String, (consumer, key): Name<'_>, payload: i64, now: Option<&str>) -> Result<(), sqlx::Error> {
    let _ = write!(sql, "('{payload}', {}, ", consumer.0);
    literal::key(sql, key)?;
    if let Some(now) = now {
        let _ = write!(sql, ", {now}");
    }
    sql.push(')');
    Ok(())
}

/// Each key once, with the payload of the first message that has it.
fn rows(claims: &[Claim]) -> BTreeMap<Name<'_>, i64> {
    let mut rows = BTreeMap::new();
    for claim in claims {
        for name in names(claim) {
            rows.entry(name).or_insert(claim.stored_payload());
        }
    }
    rows
}

/// The verdicts, from the rows that the INSERT answered. What a refused message holds beside is given up.
pub(super) async fn verdicts(
    connection: &mut PgConnection,
    inbox: &Inbox<Postgres>,
    claims: &[Claim],
    inserted: &[PgRow],
) -> Result<Vec<Verdict>, Error> {
    if let Some(claim) = alone(claims) {
        return verdict(connection, inbox, claim, inserted.first()).await.map(|verdict| vec![verdict]);
    }
    let rows = rows(claims);
    let mut fresh = HashMap::with_capacity(inserted.len());
    for row in inserted {
        let row = super::row(row)?;
        let (consumer, key) = (ConsumerId(row.int(0)?), row.held_key(1)?);
        if let Some(name) = rows.keys().find(|name| **name == (consumer, key.as_str())) {
            fresh.insert(*name, row.optional(2, Row::int)?.map(unpack));
        }
    }
    let mut refused = HashMap::new();
    for (consumer, key) in rows.keys().filter(|name| !fresh.contains_key(name)) {
        let stored = Box::pin(stored_payload(connection, inbox, *consumer, key)).await?;
        refused.insert((*consumer, *key), stored);
    }
    let (verdicts, given_up) = judge(claims, &fresh, &refused);
    for (consumer, key) in given_up {
        let delete = "DELETE FROM {inbox} WHERE consumer = ? AND message_key = ?";
        inbox.run(connection, delete, vec![consumer.into(), inbox.held(key)]).await?;
    }
    Ok(verdicts)
}

/// The verdict on one message with one key: a row was inserted, or another refused it.
async fn verdict(
    connection: &mut PgConnection,
    inbox: &Inbox<Postgres>,
    claim: &Claim,
    inserted: Option<&PgRow>,
) -> Result<Verdict, Error> {
    if let Some(row) = inserted {
        return Ok(Verdict::Fresh { prior: super::row(row)?.optional(0, Row::int)?.map(unpack) });
    }
    let (consumer, key) = name(claim);
    let stored = Box::pin(stored_payload(connection, inbox, consumer, key)).await?;
    Ok(Verdict::Duplicate { same_payload: claim.is_of_payload(stored) })
}

/// In the messages' own order: a key held by an earlier one makes a twin, a committed one a duplicate.
fn judge<'a>(
    claims: &'a [Claim],
    fresh: &HashMap<Name<'a>, Option<Attempts>>,
    refused: &HashMap<Name<'a>, i64>,
) -> (Vec<Verdict>, Vec<Name<'a>>) {
    let mut held = HashMap::<Name<'a>, usize>::new();
    let verdict = |(index, claim): (usize, &'a Claim)| {
        if let Some(first) = names(claim).find_map(|name| held.get(&name)) {
            return Verdict::Twin(*first);
        }
        if let Some(stored) = names(claim).find_map(|name| refused.get(&name)) {
            let same_payload = claim.is_of_payload(*stored);
            return Verdict::Duplicate { same_payload };
        }
        held.extend(names(claim).map(|name| (name, index)));
        Verdict::Fresh { prior: fresh.get(&name(claim)).copied().flatten() }
    };
    let verdicts = claims.iter().enumerate().map(verdict).collect();
    let given_up = fresh.keys().filter(|name| !held.contains_key(*name)).copied().collect();
    (verdicts, given_up)
}

fn unpack(counts: i64) -> Attempts {
    let part = |bits: i64| u32::try_from(bits & i64::from(u32::MAX)).unwrap_or(u32::MAX);
    Attempts { failures: part(counts >> 32), starts: part(counts) }
}

async fn stored_payload(
    connection: &mut PgConnection,
    inbox: &Inbox<Postgres>,
    consumer: ConsumerId,
    key: &str,
) -> Result<i64, Error> {
    let stored = inbox.sql("SELECT payload FROM {inbox} WHERE consumer = ? AND message_key = ?");
    let rows = Postgres::run(connection, &stored, vec![consumer.into(), inbox.held(key)]).await?;
    match rows.first() {
        Some(row) => Ok(row.int(0)?),
        None => Err(Error::with_class("the row that refused the claim was pruned at that moment", Class::Contention)),
    }
}
