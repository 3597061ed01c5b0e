//! Messages that may kill the process: each is marked before it starts, and is at last kept from running. One whose process may
//! have ended because of it runs alone. A letter that was sent back comes from the table, where nothing counts deliveries: it
//! is marked, and runs alone only if it was poison before.

use std::time::Duration;

use crate::arrival::Member;
use crate::broker::Settlement;
use crate::pipeline::{Answer, Pipeline, Why};
use crate::store::{Claim, Inbox, Reason, Store};

/// How often and for how long the end of a run is recorded later: an hour in all.
const MARK_EVERY: Duration = Duration::from_secs(1);
const MARK_TRIES: u32 = 3_600;

/// How many start markers without an end make a message poison.
pub(crate) const POISON_STARTS: u32 = 2;

impl<Db: Store> Pipeline<Db> {
    /// Parts the messages that were redelivered often without a recorded failure, since one of them may kill the process, and
    /// those that come from the table.
    pub(crate) async fn part_suspects(
        &self,
        members: Vec<Member<Db>>,
        answers: &mut Vec<Answer>,
    ) -> (Vec<Member<Db>>, Vec<Member<Db>>) {
        let (mut suspects, mut others) = (Vec::new(), Vec::new());
        for member in members {
            if member.arrival.redriven.is_some() {
                suspects.push(member);
                continue;
            }
            let redeliveries = member.arrival.received.delivery_count.saturating_sub(1);
            if redeliveries < self.options.suspect_after {
                others.push(member);
                continue;
            }
            match Box::pin(self.inbox.attempts(&member.claim)).await {
                Ok(prior) if redeliveries.saturating_sub(prior.failures) >= self.options.suspect_after => {
                    suspects.push(member);
                }
                Ok(_) => others.push(member),
                Err(error) => answers.extend(Box::pin(self.fail(member, Why::Failed(error.of_the_inbox()))).await),
            }
        }
        (suspects, others)
    }

    /// Runs a suspect, a start marker committed first, and with nothing beside it unless it is a letter that wasn't poison.
    /// Markers without an end make it poison.
    pub(crate) async fn run_suspect(&self, mut member: Member<Db>) -> Vec<Answer> {
        let (claim, end) = (member.claim.clone(), member.arrival.end.clone());
        let lease = member.arrival.settling.lease.clone();
        let answers = {
            let beside = member.arrival.redriven.as_ref().is_some_and(|redriven| redriven.reason != Reason::Poison);
            let (_alone, _shared) =
                if beside { (None, Some(self.alone.read().await)) } else { (Some(self.alone.write().await), None) };
            match self.inbox.mark_start(&claim).await {
                Ok(started) if started.starts > POISON_STARTS => {
                    let error = format!("the process ended {POISON_STARTS} times while this message ran");
                    let copies = member.take_copies();
                    let answer = self.dead_letter(member, Reason::Poison, &error, started.starts).await;
                    return self.with_copies(answer, copies);
                }
                Ok(_) => self.run_alone(member).await,
                // Its commit may have got through all the same.
                Err(error) => self.fail(member, Why::Failed(error.of_the_inbox())).await,
            }
        };

        let Err(error) = self.inbox.mark_end(&claim).await else { return answers };
        tracing::warn!(error = %error.chain(), "the end of a run alone isn't recorded yet");
        // Whoever got the message before that would count the mark as this process's death.
        let comes_again = answers.iter().any(|answer| matches!(answer, Settlement::Retry(..) | Settlement::Release(_)));
        while comes_again && !lease.lost() && end.run_until_cancelled(tokio::time::sleep(MARK_EVERY)).await.is_some() {
            if self.inbox.mark_end(&claim).await.is_ok() {
                return answers;
            }
        }
        tokio::spawn(mark_end_later(self.inbox.clone(), claim));
        answers
    }
}

/// An outage must not count as the process's death: the mark is taken back when the store answers again.
async fn mark_end_later<Db: Store>(inbox: Inbox<Db>, claim: Claim) {
    for _ in 0..MARK_TRIES {
        tokio::time::sleep(MARK_EVERY).await;
        if inbox.mark_end(&claim).await.is_ok() {
            return;
        }
    }
}
