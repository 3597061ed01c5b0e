//! The claim: rows that no other transaction may hold, inserted before any body runs.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Executor as _, MySql};

use super::batch::{Batches, SAVEPOINT};
use super::code;
use super::transaction::MySqlTransaction;
use crate::error::{Class, Error};
use crate::key::Key;
use crate::store::attempts::Attempts;
use crate::store::{Claim, ConsumerId, Inbox, Limits, Row, Verdict, classify};

/// A key in its namespace.
type Name<'a> = (ConsumerId, &'a str);

/// A claimed row after the INSERT.
#[derive(Clone, Copy)]
struct Held {
    /// Whether this transaction inserted it.
    ours: bool,
    payload: i64,
    prior: Option<Attempts>,
}

/// Why a claim has no verdict yet.
enum NotClaimed {
    Refused(Error),
    /// The session can't begin, where another one may.
    LostSession(Error),
    /// An earlier body has left the session in another database.
    NotHome,
}

impl From<sqlx::Error> for NotClaimed {
    fn from(error: sqlx::Error) -> Self {
        let lost = code::session_is_lost(&error);
        let error = Error::with_class(error.to_string(), classify(&error));
        if lost { Self::LostSession(error) } else { Self::Refused(error) }
    }
}

impl From<Error> for NotClaimed {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// BEGIN and claim. Several who wait for one key meet in a deadlock when its holder rolls back: nothing has happened
/// here yet, so that it is tried again.
pub(super) async fn begin(
    inbox: &Inbox<MySql>,
    claims: &[Claim],
    limits: Limits,
) -> Result<(MySqlTransaction, Vec<Verdict>), Error> {
    let claims = &*inbox.hold(claims);
    let deadline = Instant::now() + limits.claim;
    let left = || deadline.saturating_duration_since(Instant::now());
    let mut tx = MySqlTransaction::new(inbox, left()).await?;
    loop {
        let error = match tokio::time::timeout(left(), claim(&mut tx, inbox, claims, limits)).await {
            Ok(Ok(verdicts)) => return Ok((tx, verdicts)),
            Ok(Err(error)) => error,
            Err(_) => {
                tx.close().await;
                let text = "another transaction holds the key for longer than the claim may wait";
                return Err(Error::with_class(text, Class::Unavailable));
            }
        };
        match error {
            NotClaimed::NotHome => tx.start_again().await?,
            NotClaimed::LostSession(_) if tx.is_reused() => {
                // Idle lanes are likely to have gone with it.
                inbox.lanes().forget_idle();
                drop(tx);
                tx = MySqlTransaction::new(inbox, left()).await?;
            }
            NotClaimed::Refused(error) if error.class() == Class::Contention => {
                tx.rollback().await;
                if left().is_zero() {
                    return Err(error);
                }
                tokio::time::sleep(Duration::from_micros(fastrand::u64(500..5_000))).await;
                tx = MySqlTransaction::new(inbox, left()).await?;
            }
            NotClaimed::Refused(error) | NotClaimed::LostSession(error) => {
                tx.hang_up().await;
                return Err(error);
            }
        }
    }
}

async fn claim(
    tx: &mut MySqlTransaction,
    inbox: &Inbox<MySql>,
    claims: &[Claim],
    limits: Limits,
) -> Result<Vec<Verdict>, NotClaimed> {
    tx.settle(limits).await?;
    match claims {
        [one] if one.keys().count() == 1 => claim_one(tx, inbox, one).await.map(|verdict| vec![verdict]),
        _ => Box::pin(claim_group(tx, inbox, claims)).await,
    }
}

/// One key in one round trip. A plain INSERT: the number of affected rows can't be told from found ones in sqlx.
async fn claim_one(tx: &mut MySqlTransaction, inbox: &Inbox<MySql>, claim: &Claim) -> Result<Verdict, NotClaimed> {
    let name = || vec![claim.consumer.into(), inbox.held(claim.identity.name().as_str())];
    match tx.begin_and_claim(claim).await {
        Ok(1) => Ok(Verdict::Fresh { prior: None }),
        Ok(_) => {
            let prior = "SELECT failures, starts FROM {attempts} WHERE consumer = ? AND message_key = ?";
            let rows = inbox.run(tx, prior, name()).await?;
            let prior = rows.first().map(|row| Attempts::from_row(row, 0)).transpose()?;
            Ok(Verdict::Fresh { prior })
        }
        Err(error) if code::number(&error) == Some(code::DUPLICATE_KEY) => {
            let stored = "SELECT payload FROM {inbox} WHERE consumer = ? AND message_key = ?";
            let rows = inbox.run(tx, stored, name()).await?;
            let payload = rows.first().ok_or(sqlx::Error::RowNotFound)?.int(0)?;
            tx.execute(SAVEPOINT).await?;
            Ok(Verdict::Duplicate { same_payload: claim.is_of_payload(payload) })
        }
        Err(error) if code::number(&error) == Some(code::NULL_REFUSED) => Err(NotClaimed::NotHome),
        Err(error) => Err(error.into()),
    }
}

async fn claim_group(
    tx: &mut MySqlTransaction,
    inbox: &Inbox<MySql>,
    claims: &[Claim],
) -> Result<Vec<Verdict>, NotClaimed> {
    let begin = Batches::begin(&tx.lane().session);
    tx.execute(AssertSqlSafe(begin)).await?;
    let verdicts = if claims.iter().all(|claim| claim.keys().count() == 1) {
        claim_at_once(tx, inbox, claims).await?
    } else {
        claim_in_turn(tx, inbox, claims).await?
    };
    tx.execute(SAVEPOINT).await?;
    Ok(verdicts)
}

fn name(claim: &Claim) -> Name<'_> {
    (claim.consumer, claim.identity.name().as_str())
}

/// A group in which each message has one key: one statement for all.
async fn claim_at_once(
    tx: &mut MySqlTransaction,
    inbox: &Inbox<MySql>,
    claims: &[Claim],
) -> Result<Vec<Verdict>, Error> {
    let mut firsts = HashMap::with_capacity(claims.len());
    for (index, claim) in claims.iter().enumerate() {
        firsts.entry(name(claim)).or_insert(index);
    }
    let rows = firsts.values().map(|first| &claims[*first]);
    let held =
        insert(tx, inbox, rows.map(|claim| (claim.consumer, claim.identity.name(), claim.stored_payload()))).await?;
    let verdict = |(index, claim): (usize, &Claim)| {
        let (row, first) = (find(&held, name(claim))?, firsts[&name(claim)]);
        Ok(match row.ours {
            true if first == index => Verdict::Fresh { prior: row.prior },
            true => Verdict::Twin(first),
            false => Verdict::Duplicate { same_payload: claim.is_of_payload(row.payload) },
        })
    };
    claims.iter().enumerate().map(verdict).collect()
}

/// A group in which some messages hold the key before too, which is rare: one after the other, so that a refused one
/// leaves no row that would refuse the next.
async fn claim_in_turn(
    tx: &mut MySqlTransaction,
    inbox: &Inbox<MySql>,
    claims: &[Claim],
) -> Result<Vec<Verdict>, Error> {
    let mut taken = HashMap::<Name<'_>, usize>::new();
    let mut verdicts = Vec::with_capacity(claims.len());
    for (index, claim) in claims.iter().enumerate() {
        let names = claim.keys().map(|key| (claim.consumer, key.as_str())).collect::<Vec<_>>();
        if let Some(first) = names.iter().find_map(|name| taken.get(name)) {
            verdicts.push(Verdict::Twin(*first));
            continue;
        }
        let held = insert(tx, inbox, claim.keys().map(|key| (claim.consumer, key, claim.stored_payload()))).await?;
        let Some((_, refusing)) = held.iter().find(|(_, row)| !row.ours) else {
            taken.extend(names.iter().map(|name| (*name, index)));
            verdicts.push(Verdict::Fresh { prior: find(&held, name(claim))?.prior });
            continue;
        };
        let same_payload = claim.is_of_payload(refusing.payload);
        for ((consumer, key), _) in held.iter().filter(|(_, row)| row.ours) {
            let give_up = "DELETE FROM {inbox} WHERE consumer = ? AND message_key = ?";
            inbox.run(tx, give_up, vec![(*consumer).into(), inbox.held(key)]).await?;
        }
        verdicts.push(Verdict::Duplicate { same_payload });
    }
    Ok(verdicts)
}

/// Inserts the rows that nobody holds, in the order of their bytes, in which no two groups lock each other out; and
/// answers all of them.
async fn insert<'a>(
    tx: &mut MySqlTransaction,
    inbox: &Inbox<MySql>,
    rows: impl Iterator<Item = (ConsumerId, &'a Key, i64)>,
) -> Result<BTreeMap<(ConsumerId, String), Held>, Error> {
    let mut rows = rows.collect::<Vec<_>>();
    if rows.is_empty() {
        return Ok(BTreeMap::new());
    }
    rows.sort_unstable_by(|one, other| (one.0, one.1.as_str()).cmp(&(other.0, other.1.as_str())));
    // A number of this statement's own tells its rows from those that were there.
    let statement = inbox.batches().claim_many(fastrand::i64(..), &rows)?;
    let rows = sqlx::raw_sql(AssertSqlSafe(statement)).fetch_all(&mut **tx).await?;
    rows.iter().map(|row| held(&super::row(row)?)).collect()
}

fn held(row: &Row) -> Result<((ConsumerId, String), Held), Error> {
    let failed = row.optional(4, Row::int)?.is_some();
    let prior = if failed { Some(Attempts::from_row(row, 4)?) } else { None };
    let name = (ConsumerId(row.int(0)?), row.held_key(1)?);
    Ok((name, Held { ours: row.int(3)? == 1, payload: row.int(2)?, prior }))
}

fn find(held: &BTreeMap<(ConsumerId, String), Held>, (consumer, key): Name<'_>) -> Result<Held, Error> {
    Ok(*held.get(&(consumer, key.to_owned())).ok_or(sqlx::Error::RowNotFound)?)
}
