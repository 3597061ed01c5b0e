//! Consumers written by hand, each of which breaks one rule. What the check says of them shows what it can see.

use std::sync::Arc;

use inboxed::testing::FaultPoint;
use sqlx::{Pool, Transaction};

use super::accounts::post;
use super::{BEGIN, CLAIM, Db, LOOK, SEE, SPOIL};
use crate::arguments::{Control, Run};
use crate::by_hand::{Hand, Token, work};
use crate::consumer::CONCURRENCY;
use crate::fault::Faults;
use crate::ledger::{Message, SOURCES};
use crate::tally::{Mark, Tally};

/// In a message of so many the body swallows an error.
const SPOILED: i64 = 40;

/// Consumes in this process, with as many loops as a consumer has tasks.
pub(super) async fn consume(control: Control, run: &Run, faults: Faults, tally: Arc<Tally>) -> anyhow::Result<()> {
    let options = sqlx::pool::PoolOptions::<Db>::new();
    let pool = options.max_connections(u32::try_from(CONCURRENCY * SOURCES.len())?).connect(&run.database_url).await?;
    let by_hand = ByHand { control, pool, faults, tally: Arc::clone(&tally) };
    work(run, &tally, move |hand, message, token| {
        let by_hand = by_hand.clone();
        async move { by_hand.handle(&hand, &message, token).await }
    })
    .await
}

#[derive(Clone)]
struct ByHand {
    control: Control,
    pool: Pool<Db>,
    faults: Faults,
    tally: Arc<Tally>,
}

impl ByHand {
    async fn handle(&self, hand: &Hand, message: &Message, token: Token) -> anyhow::Result<()> {
        self.faults.reach(FaultPoint::Received);
        self.faults.reach(FaultPoint::Keyed);
        if self.control == Control::SelectInsert {
            let seen = sqlx::query(LOOK).bind(message.id).fetch_optional(&self.pool).await?.is_some();
            if seen {
                return hand.acknowledge(token).await;
            }
        }
        let mut tx = self.pool.begin_with(BEGIN).await?;
        match self.control {
            Control::Claim | Control::Pool => {}
            Control::SelectInsert => drop(sqlx::query(SEE).bind(message.id).execute(&mut *tx).await?),
            Control::AckFirst | Control::Unchecked => {
                let claimed = sqlx::query(CLAIM).bind(message.id).execute(&mut *tx).await?.rows_affected();
                if claimed == 0 {
                    tx.rollback().await?;
                    return hand.acknowledge(token).await;
                }
            }
        }
        if self.control == Control::AckFirst {
            hand.acknowledge(token).await?;
            return self.effect(message, tx).await;
        }
        self.effect(message, tx).await?;
        hand.acknowledge(token).await?;
        self.faults.reach(FaultPoint::Acknowledged);
        Ok(())
    }

    /// The effect and the commit.
    async fn effect(&self, message: &Message, mut tx: Transaction<'_, Db>) -> anyhow::Result<()> {
        self.faults.reach(FaultPoint::Claimed);
        post(message, &mut tx).await?;
        let unchecked = self.control == Control::Unchecked;
        if unchecked && message.id % SPOILED == 0 {
            let _ = sqlx::raw_sql(SPOIL).execute(&mut *tx).await;
        }
        self.faults.reach(FaultPoint::EffectDone);
        self.faults.reach(FaultPoint::BeforeCommit);
        let committed = tx.commit().await;
        if !unchecked {
            committed?;
        }
        self.tally.note(Mark::Handled);
        self.faults.reach(FaultPoint::Committed);
        self.faults.reach(FaultPoint::BeforeAcknowledge);
        Ok(())
    }
}
