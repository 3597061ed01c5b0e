//! The proof that acknowledges, and the only functions that can make one.
//!
//! A [`Committed`] says that a transaction holding the message's key has committed: this attempt's ([`Unit::commit`]), or
//! an earlier one's ([`Unit::begin`], [`Committed::covering`]); or that a dead letter has ([`bury`]). It wraps the
//! delivery's own settlement token, which went in with the claim, so no delivery's proof can acknowledge another.

use crate::error::{Class, Error};
use crate::store::{Attempts, Claim, CommitError, Inbox, Limits, NewLetter, Reason, Store, Verdict};

/// A settlement token whose message needs no further delivery.
///
/// There is no public way to make one. It is used up by acknowledging:
///
/// ```compile_fail,E0382
/// # use inboxed_runtime::Committed;
/// # use inboxed_runtime::broker::Settlement;
/// fn acknowledge_twice(proof: Committed<u64>) -> [Settlement<u64>; 2] {
///     [Settlement::Ack(proof), Settlement::Ack(proof)]
/// }
/// ```
#[derive(Debug)]
pub struct Committed<T> {
    token: T,
    how: How,
}

/// What stands behind a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// This attempt's transaction.
    Effect,
    /// A row that was committed before.
    Duplicate {
        /// Whether the committed message had the same payload.
        same_payload: bool,
    },
    /// A dead letter, for this reason.
    DeadLettered(Reason),
    /// Nothing: the consumer was told to skip messages of unknown types.
    Skipped,
}

impl<T> Committed<T> {
    /// The token, for the adapter that acknowledges it.
    pub fn into_token(self) -> T {
        self.token
    }

    pub(crate) fn how(&self) -> How {
        self.how
    }

    pub(crate) fn get(&self) -> &T {
        &self.token
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        &mut self.token
    }

    /// The same proof around a part or another shape of the same token.
    pub(crate) fn map<U>(self, shape: impl FnOnce(T) -> U) -> Committed<U> {
        Committed { token: shape(self.token), how: self.how }
    }

    /// A message of an unknown type, which the consumer was told to skip.
    pub(crate) fn skipped(token: T) -> Self {
        Self { token, how: How::Skipped }
    }

    /// A copy of the message that was set aside while this one ran. The caller keeps copies by claim.
    pub(crate) fn covering<U>(&self, copy: U, same_payload: bool) -> Committed<U> {
        // What is like a message that isn't like the committed one isn't like that either.
        let same_payload = same_payload && self.how != How::Duplicate { same_payload: false };
        Committed { token: copy, how: How::Duplicate { same_payload } }
    }
}

/// An open transaction that holds claims, and the members they belong to.
pub(crate) struct Unit<Db: Store, M> {
    tx: Db::Tx,
    fresh: Vec<Fresh<M>>,
    /// Copies, and whether each has the payload of its first.
    twins: Vec<(M, bool)>,
}

/// A member whose claim is ours.
#[derive(Debug)]
pub(crate) struct Fresh<M> {
    pub member: M,
    pub claim: Claim,
    pub prior: Option<Attempts>,
}

/// A transaction that didn't commit, and its members.
#[derive(Debug)]
pub(crate) struct Uncommitted<M> {
    pub members: Vec<M>,
    pub error: Error,
    /// Whether the commit may have succeeded all the same.
    pub unknown: bool,
}

impl<Db: Store, M> Unit<Db, M> {
    /// BEGIN and claim. The first part of the answer is `None` if no member's claim was fresh.
    pub(crate) async fn begin(
        inbox: &Inbox<Db>,
        members: Vec<(Claim, M)>,
        limits: Limits,
    ) -> Result<(Option<Self>, Vec<Committed<M>>), Uncommitted<M>> {
        let (claims, members): (Vec<Claim>, Vec<M>) = members.into_iter().unzip();
        let (tx, verdicts) = match Db::begin(inbox, &claims, limits).await {
            Ok(begun) => begun,
            Err(error) => return Err(Uncommitted { members, error: error.of_the_inbox(), unknown: false }),
        };
        let mut unit = Self { tx, fresh: Vec::new(), twins: Vec::new() };
        let mut duplicates = Vec::new();
        let payloads = claims.iter().map(|claim| claim.payload).collect::<Vec<_>>();
        for ((claim, member), verdict) in claims.into_iter().zip(members).zip(verdicts) {
            match verdict {
                Verdict::Fresh { prior } => unit.fresh.push(Fresh { member, claim, prior }),
                Verdict::Duplicate { same_payload } => {
                    duplicates.push(Committed { token: member, how: How::Duplicate { same_payload } });
                }
                Verdict::Twin(first) => {
                    let same_payload = payloads.get(first) == Some(&claim.payload);
                    unit.twins.push((member, same_payload));
                }
            }
        }
        if unit.fresh.is_empty() {
            Db::rollback(unit.tx).await;
            return Ok((None, duplicates));
        }
        Ok((Some(unit), duplicates))
    }

    pub(crate) fn len(&self) -> usize {
        self.fresh.len()
    }

    /// The transaction and one of the members that run in it.
    pub(crate) fn member(&mut self, index: usize) -> (&mut Db::Connection, &mut Fresh<M>) {
        (&mut self.tx, &mut self.fresh[index])
    }

    /// Whether a body has left the transaction as it was.
    pub(crate) async fn check(&mut self) -> Result<(), Error> {
        Db::check(&mut self.tx).await
    }

    /// The checked commit.
    pub(crate) async fn commit(self) -> Result<Vec<Committed<M>>, Uncommitted<M>> {
        let fresh = self.fresh.into_iter().map(|fresh| Committed { token: fresh.member, how: How::Effect });
        let twins = self
            .twins
            .into_iter()
            .map(|(member, same_payload)| Committed { token: member, how: How::Duplicate { same_payload } });
        let proofs = fresh.chain(twins).collect::<Vec<_>>();
        let (error, unknown) = match Db::commit(self.tx).await {
            Ok(()) => return Ok(proofs),
            Err(CommitError::Refused(error)) => (error, false),
            Err(CommitError::Unknown(error)) => (error, true),
        };
        Err(Uncommitted { members: proofs.into_iter().map(Committed::into_token).collect(), error, unknown })
    }

    /// Rolls back and gives the members back.
    pub(crate) async fn rollback(self) -> Vec<M> {
        Db::rollback(self.tx).await;
        members(self.fresh, self.twins)
    }

    /// Ends the transaction with its connection and gives the members back.
    pub(crate) async fn close(self) -> Vec<M> {
        Db::close(self.tx).await;
        members(self.fresh, self.twins)
    }
}

fn members<M>(fresh: Vec<Fresh<M>>, twins: Vec<(M, bool)>) -> Vec<M> {
    fresh.into_iter().map(|fresh| fresh.member).chain(twins.into_iter().map(|(member, _)| member)).collect()
}

/// Writes a dead letter under the claim: a claim that a committed row refuses makes it a duplicate instead, and
/// nothing is written.
pub(crate) async fn bury<Db: Store, M>(
    inbox: &Inbox<Db>,
    claim: Option<Claim>,
    letter: NewLetter<'_>,
    member: M,
    limits: Limits,
) -> Result<Committed<M>, (Error, M)> {
    let claims = claim.as_slice();
    let (mut tx, verdicts) = match Db::begin(inbox, claims, limits).await {
        Ok(begun) => begun,
        Err(error) => return Err((error, member)),
    };
    if let Some(Verdict::Duplicate { same_payload }) = verdicts.first() {
        let how = How::Duplicate { same_payload: *same_payload };
        if let Err(error) = letter.close_redriven(inbox, &mut tx).await {
            Db::close(tx).await;
            return Err((error, member));
        }
        return match Db::commit(tx).await {
            Ok(()) => Ok(Committed { token: member, how }),
            Err(CommitError::Refused(error) | CommitError::Unknown(error)) => Err((error, member)),
        };
    }
    let how = How::DeadLettered(letter.reason);
    if let Err(error) = letter.insert_and_unclaim(inbox, &mut tx, claims.first()).await {
        Db::close(tx).await;
        return Err((error, member));
    }
    match Db::commit(tx).await {
        Ok(()) => Ok(Committed { token: member, how }),
        Err(CommitError::Refused(error) | CommitError::Unknown(error)) => {
            Err((Error::with_class(error.chain(), Class::Unavailable), member))
        }
    }
}
