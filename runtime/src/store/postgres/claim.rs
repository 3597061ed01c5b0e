//! The claim: rows that no other transaction may hold, inserted before any body runs.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::time::Duration;

use sqlx::PgConnection;
use sqlx::Postgres;
use sqlx::postgres::PgRow;

use super::literal;
use crate::error::{Class, Error};
use crate::store::attempts::Attempts;
use crate::store::{Claim, ConsumerId, Inbox, Limits, Row, Store as _, Verdict};

/// How much longer than the pipeline's own deadline the server lets a statement run: the pipeline's says more, and the
/// server's is for a process that is gone.
const GRACE: Duration = Duration::from_millis(250);

/// How much longer a transaction may stand idle in the middle.
const IDLE_GRACE: Duration = Duration::from_secs(2);

/// The parts of the text that begins a transaction, made once for an inbox.
#[derive(Debug)]
pub(super) struct Statements {
    begin: String,
    insert: String,
    on_conflict: String,
}

/// A key in its namespace.
type Name<'a> = (ConsumerId, &'a str);

impl Statements {
    pub(super) fn new(inbox: &Inbox<Postgres>, pooled: bool) -> Self {
        // Another client of the pooler may have left statements under the names that the body's will have.
        let deallocate = if pooled { "DEALLOCATE ALL; " } else { "" };
        let begin = format!(
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; {deallocate}SELECT pg_backend_pid(), (extract(epoch FROM now()) * 1000000)::bigint, \
             set_config('synchronous_commit', CASE current_setting('synchronous_commit') \
             WHEN 'remote_apply' THEN 'remote_apply' ELSE 'on' END, true), "
        );
        let insert =
            inbox.sql("; INSERT INTO {inbox} AS claimed (payload, consumer, message_key, received_at) VALUES ");
        let on_conflict = inbox.sql(
            " ON CONFLICT (consumer, message_key) DO NOTHING RETURNING consumer, message_key, \
             (SELECT attempt.failures << 32 | attempt.starts FROM {attempts} AS attempt \
             WHERE attempt.consumer = claimed.consumer AND attempt.message_key = claimed.message_key)",
        );
        Self { begin, insert, on_conflict }
    }

    /// BEGIN, settings that end with the transaction, the claims sorted bytewise against deadlocks, and the savepoint.
    pub(super) fn begin(&self, claims: &[Claim], limits: Limits) -> Result<String, sqlx::Error> {
        let (claim, run) = (milliseconds(limits.claim), milliseconds(limits.run.saturating_add(GRACE)));
        let idle = milliseconds(limits.run.saturating_add(IDLE_GRACE));
        let first = if claims.is_empty() || limits.claim >= limits.run { run } else { claim };
        let mut sql = String::with_capacity(1_024 + 64 * claims.len());
        let _ = write!(
            sql,
            "{}set_config('statement_timeout', '{first}', true), \
             set_config('idle_in_transaction_session_timeout', '{idle}', true)",
            self.begin
        );
        if !claims.is_empty() {
            sql.push_str(", set_config('inboxed.guard', 'on', true)");
            sql.push_str(&self.insert);
            for (number, ((consumer, key), payload)) in rows(claims).into_iter().enumerate() {
                sql.push_str(if number == 0 { "" } else { ", " });
                let _ = write!(sql, "('{payload}', {}, ", consumer.0);
                literal::key(&mut sql, key)?;
                let _ = write!(sql, ", {})", Postgres::NOW);
            }
            sql.push_str(&self.on_conflict);
            if first != run {
                let _ = write!(sql, "; SET LOCAL statement_timeout = {run}");
            }
        }
        sql.push_str("; SAVEPOINT inboxed");
        Ok(sql)
    }
}

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

/// Each key once, with the payload of the first message that has it.
fn rows(claims: &[Claim]) -> BTreeMap<Name<'_>, i64> {
    let mut rows = BTreeMap::new();
    for claim in claims {
        for name in names(claim) {
            rows.entry(name).or_insert(claim.payload);
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
    let rows = rows(claims);
    let mut fresh = HashMap::with_capacity(inserted.len());
    for row in inserted {
        let row = super::row(row)?;
        let (consumer, key) = (ConsumerId(row.int(0)?), row.text(1)?);
        if let Some(name) = rows.keys().find(|name| **name == (consumer, key)) {
            fresh.insert(*name, row.optional(2, Row::int)?.map(unpack));
        }
    }
    let mut refused = HashMap::new();
    for (consumer, key) in rows.keys().filter(|name| !fresh.contains_key(name)) {
        refused.insert((*consumer, *key), stored_payload(connection, inbox, *consumer, key).await?);
    }
    let (verdicts, given_up) = judge(claims, &fresh, &refused);
    for (consumer, key) in given_up {
        let give_up = "DELETE FROM {inbox} WHERE consumer = ? AND message_key = ?";
        inbox.run(connection, give_up, vec![consumer.into(), key.into()]).await?;
    }
    Ok(verdicts)
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
            return Verdict::Duplicate { same_payload: *stored == claim.payload };
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
    let rows = Postgres::run(connection, &stored, vec![consumer.into(), key.into()]).await?;
    match rows.first() {
        Some(row) => Ok(row.int(0)?),
        None => Err(Error::with_class("the row that refused the claim was pruned at that moment", Class::Contention)),
    }
}
