//! Consumers written by hand, each of which breaks one rule. What the check says of them shows what it can see.

use std::sync::Arc;

use inboxed::testing::FaultPoint;
use sqlx::pool::PoolOptions;
use sqlx::{Executor as _, Pool};

use super::accounts::post;
use super::{BEGIN, CLAIM, Connection, Db, LOOK, SEE, SPOIL};
use crate::arguments::{Control, Run};
use crate::by_hand::{Hand, work};
use crate::consumer::CONCURRENCY;
use crate::fault::Faults;
use crate::ledger::{Message, SOURCES};
use crate::tally::{Mark, Tally};

/// In one message of so many the body swallows an error.
const SPOILED: i64 = 40;

/// Consumes in this process, with as many loops as a consumer has tasks.
pub(super) async fn consume(control: Control, run: &Run, faults: Faults, tally: Arc<Tally>) -> anyhow::Result<()> {
    let connections = u32::try_from(CONCURRENCY * SOURCES.len())?;
    let pool = PoolOptions::<Db>::new().max_connections(connections).connect(&run.database_url).await?;
    let by_hand = Arc::new(ByHand { control, pool, faults, tally: Arc::clone(&tally) });
    work(run, &tally, move |message, hand| {
        let by_hand = Arc::clone(&by_hand);
        async move { by_hand.handle(&message, hand).await }
    })
    .await
}

struct ByHand {
    control: Control,
    pool: Pool<Db>,
    faults: Faults,
    tally: Arc<Tally>,
}

impl ByHand {
    async fn handle(&self, message: &Message, hand: Hand) -> anyhow::Result<()> {
        self.faults.reach(FaultPoint::Received);
        self.faults.reach(FaultPoint::Keyed);
        let mut connection = self.pool.acquire().await?;
        match self.in_order(message, hand, &mut connection).await {
            Ok(true) => Ok(()),
            // Nobody knows what is open on it.
            Ok(false) => Ok(connection.close().await?),
            Err(error) => {
                connection.close().await?;
                Err(error)
            }
        }
    }

    /// What such loops do, each without one rule. Answers whether the connection is as it was.
    async fn in_order(&self, message: &Message, hand: Hand, connection: &mut Connection) -> anyhow::Result<bool> {
        if self.control == Control::SelectInsert
            && sqlx::query(LOOK).bind(message.id).fetch_optional(&mut *connection).await?.is_some()
        {
            hand.acknowledge().await?;
            return Ok(true);
        }
        connection.execute(BEGIN).await?;
        let fresh = match self.control {
            Control::Claim | Control::Pool => true,
            Control::SelectInsert => sqlx::query(SEE).bind(message.id).execute(&mut *connection).await.map(|_| true)?,
            Control::AckFirst | Control::Unchecked => {
                sqlx::query(CLAIM).bind(message.id).execute(&mut *connection).await?.rows_affected() == 1
            }
        };
        if !fresh {
            connection.execute("ROLLBACK").await?;
            hand.acknowledge().await?;
            return Ok(true);
        }
        if self.control == Control::AckFirst {
            hand.acknowledge().await?;
            return self.effect(message, connection).await;
        }
        let whole = self.effect(message, connection).await?;
        hand.acknowledge().await?;
        self.faults.reach(FaultPoint::Acknowledged);
        Ok(whole)
    }

    /// The effect and the commit, which one of them doesn't look at.
    async fn effect(&self, message: &Message, connection: &mut Connection) -> anyhow::Result<bool> {
        self.faults.reach(FaultPoint::Claimed);
        post(message, connection).await?;
        let unchecked = self.control == Control::Unchecked;
        if unchecked && message.id % SPOILED == 0 {
            let _ = connection.execute(SPOIL).await;
        }
        self.faults.reach(FaultPoint::EffectDone);
        self.faults.reach(FaultPoint::BeforeCommit);
        let committed = connection.execute("COMMIT").await;
        let whole = committed.is_ok();
        if !unchecked {
            committed?;
        }
        self.tally.note(Mark::Handled);
        self.faults.reach(FaultPoint::Committed);
        self.faults.reach(FaultPoint::BeforeAcknowledge);
        Ok(whole)
    }
}
