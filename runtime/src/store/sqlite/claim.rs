//! The claim: rows that no other transaction may hold, inserted before any body runs.

use std::collections::HashMap;
use std::sync::Arc;

use super::bind;
use super::transaction::Opening;
use crate::error::Error;
use crate::store::attempts::Attempts;
use crate::store::{Claim, ConsumerId, Inbox, Row, Store as _, Value, Verdict};
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Sqlite, SqliteConnection};

/// What the checked commit looks for.
const SAVEPOINT: &str = "SAVEPOINT inboxed";

/// A key in its namespace.
type Name<'a> = (ConsumerId, &'a str);

/// What a lane begins with. One message with one key, the usual case, is claimed in the same round trip.
pub(super) fn opening(inbox: &Inbox<Sqlite>, claims: &[Claim]) -> Opening {
    let [claim] = claims else { return Opening { sql: "BEGIN IMMEDIATE".into(), arguments: Vec::new() } };
    if claim.keys().count() > 1 {
        return opening(inbox, &[]);
    }
    let text = || format!("BEGIN IMMEDIATE; {}", insertion(inbox, 1, "", SAVEPOINT)).into();
    let sql = Arc::clone(inbox.shared().claiming.get_or_init(text));
    Opening { sql, arguments: arguments(inbox, &[(name(claim), claim.stored_payload())]) }
}

/// The verdicts, where the opening has claimed already: it answers a row if the claim is ours.
pub(super) async fn verdicts(
    connection: &mut SqliteConnection,
    inbox: &Inbox<Sqlite>,
    claims: &[Claim],
    opened: Option<Vec<SqliteRow>>,
) -> Result<Vec<Verdict>, Error> {
    let ([claimed], Some(inserted)) = (claims, opened) else {
        return Box::pin(claim(connection, inbox, claims)).await;
    };
    if claimed.keys().count() > 1 {
        return Box::pin(claim(connection, inbox, claims)).await;
    }
    let (consumer, key) = name(claimed);
    let verdict = if let Some(row) = inserted.first() {
        Verdict::Fresh { prior: super::row(row)?.optional(0, Row::int)?.map(unpack) }
    } else {
        let stored = Box::pin(stored_payload(connection, inbox, consumer, key)).await?;
        Verdict::Duplicate { same_payload: claimed.is_of_payload(stored) }
    };
    Ok(vec![verdict])
}

/// Claims a group and sets the savepoint. The write lock is held, so nothing changes between two statements.
async fn claim(
    connection: &mut SqliteConnection,
    inbox: &Inbox<Sqlite>,
    claims: &[Claim],
) -> Result<Vec<Verdict>, Error> {
    if !claims.is_empty() && claims.iter().all(|claim| claim.keys().count() == 1) {
        return claim_at_once(connection, inbox, claims).await;
    }
    let verdicts = claim_in_turn(connection, inbox, claims).await?;
    sqlx::raw_sql(SAVEPOINT).execute(connection).await?;
    Ok(verdicts)
}

fn name(claim: &Claim) -> Name<'_> {
    (claim.consumer, claim.identity.name().as_str())
}

/// A group in which each message has one key: one round trip for all rows and the savepoint after them.
async fn claim_at_once(
    connection: &mut SqliteConnection,
    inbox: &Inbox<Sqlite>,
    claims: &[Claim],
) -> Result<Vec<Verdict>, Error> {
    let mut firsts = HashMap::with_capacity(claims.len());
    for (index, claim) in claims.iter().enumerate() {
        firsts.entry(name(claim)).or_insert(index);
    }
    let distinct = claims.iter().enumerate().filter(|(index, claim)| firsts[&name(claim)] == *index);
    let rows = distinct.map(|(_, claim)| (name(claim), claim.stored_payload())).collect::<Vec<_>>();
    let fresh = insert(connection, inbox, &rows, SAVEPOINT).await?;
    let mut refused = HashMap::new();
    for ((consumer, key), _) in rows.iter().filter(|(name, _)| !fresh.contains_key(name)) {
        refused.insert((*consumer, *key), stored_payload(connection, inbox, *consumer, key).await?);
    }
    let verdict = |(index, claim): (usize, &Claim)| match (fresh.get(&name(claim)), firsts[&name(claim)]) {
        (Some(prior), first) if first == index => Verdict::Fresh { prior: *prior },
        (Some(_), first) => Verdict::Twin(first),
        (None, _) => {
            let stored = refused.get(&name(claim));
            Verdict::Duplicate { same_payload: stored.is_some_and(|stored| claim.is_of_payload(*stored)) }
        }
    };
    Ok(claims.iter().enumerate().map(verdict).collect())
}

/// A group in which some messages hold the key before too, which is rare: one after the other, so that a refused one
/// leaves no row that would refuse the next.
async fn claim_in_turn(
    connection: &mut SqliteConnection,
    inbox: &Inbox<Sqlite>,
    claims: &[Claim],
) -> Result<Vec<Verdict>, Error> {
    let mut held = HashMap::<Name<'_>, usize>::new();
    let mut verdicts = Vec::with_capacity(claims.len());
    for (index, claim) in claims.iter().enumerate() {
        let names = claim.keys().map(|key| (claim.consumer, key.as_str())).collect::<Vec<_>>();
        if let Some(first) = names.iter().find_map(|name| held.get(name)) {
            verdicts.push(Verdict::Twin(*first));
            continue;
        }
        let rows = names.iter().map(|name| (*name, claim.stored_payload())).collect::<Vec<_>>();
        let fresh = insert(connection, inbox, &rows, "").await?;
        let Some((consumer, key)) = names.iter().copied().find(|name| !fresh.contains_key(name)) else {
            held.extend(names.iter().map(|name| (*name, index)));
            let prior = fresh.get(&name(claim)).copied().flatten();
            verdicts.push(Verdict::Fresh { prior });
            continue;
        };
        for (consumer, key) in fresh.keys() {
            let give_up = "DELETE FROM {inbox} WHERE consumer = ? AND message_key = ?";
            inbox.run(connection, give_up, vec![(*consumer).into(), inbox.held(key)]).await?;
        }
        let stored = stored_payload(connection, inbox, consumer, key).await?;
        verdicts.push(Verdict::Duplicate { same_payload: claim.is_of_payload(stored) });
    }
    Ok(verdicts)
}

/// Inserts the rows that nobody holds, runs what is to follow, and answers them with what earlier attempts left behind.
async fn insert<'a>(
    connection: &mut SqliteConnection,
    inbox: &Inbox<Sqlite>,
    rows: &[(Name<'a>, i64)],
    then: &str,
) -> Result<HashMap<Name<'a>, Option<Attempts>>, Error> {
    let statement = insertion(inbox, rows.len(), "consumer, message_key, ", then);
    let inserted =
        sqlx::query_with(AssertSqlSafe(statement), bind(arguments(inbox, rows))?).fetch_all(connection).await?;
    let mut fresh = HashMap::with_capacity(inserted.len());
    for row in inserted.iter().map(super::row) {
        let row = row?;
        let (consumer, key) = (ConsumerId(row.int(0)?), row.held_key(1)?);
        let prior = row.optional(2, Row::int)?.map(unpack);
        if let Some((name, _)) = rows.iter().find(|(name, _)| *name == (consumer, key.as_str())) {
            fresh.insert(*name, prior);
        }
    }
    Ok(fresh)
}

/// The text that inserts so many rows and answers them with the attempts so far, and what is to follow.
fn insertion(inbox: &Inbox<Sqlite>, rows: usize, columns: &str, then: &str) -> String {
    let places = vec!["(?, ?, {now}, ?)"; rows].join(", ");
    // Both counts in one number, so that the attempts are looked up once.
    inbox.sql(&format!(
        "INSERT INTO {{inbox}} (consumer, message_key, received_at, payload) VALUES {places} \
         ON CONFLICT (consumer, message_key) DO NOTHING RETURNING {columns}\
         (SELECT failures << 32 | starts FROM {{attempts}} AS attempt \
         WHERE attempt.consumer = {{prefix}}.consumer AND attempt.message_key = {{prefix}}.message_key); {then}"
    ))
}

fn arguments(inbox: &Inbox<Sqlite>, rows: &[(Name<'_>, i64)]) -> Vec<Value> {
    let values =
        |((consumer, key), payload): &(Name<'_>, i64)| [Value::from(*consumer), inbox.held(key), Value::Int(*payload)];
    rows.iter().flat_map(values).collect()
}

fn unpack(counts: i64) -> Attempts {
    let part = |bits: i64| u32::try_from(bits & i64::from(u32::MAX)).unwrap_or(u32::MAX);
    Attempts { failures: part(counts >> 32), starts: part(counts) }
}

async fn stored_payload(
    connection: &mut SqliteConnection,
    inbox: &Inbox<Sqlite>,
    consumer: ConsumerId,
    key: &str,
) -> Result<i64, Error> {
    let stored = "SELECT payload FROM {inbox} WHERE consumer = ? AND message_key = ?";
    let rows = Sqlite::run(connection, &inbox.sql(stored), vec![consumer.into(), inbox.held(key)]).await?;
    Ok(rows.first().ok_or(sqlx::Error::RowNotFound)?.int(0)?)
}
