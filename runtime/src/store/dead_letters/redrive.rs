//! The table as a source: letters that are to be handled again.

use std::time::{Duration, SystemTime};

use super::{DeadLetter, LetterId, Reason};
use crate::error::Error;
use crate::message::Received;
use crate::store::registry::ConsumerId;
use crate::store::{Inbox, Store, Value, clock};

/// A letter that is to be handled again, leased to this process.
#[derive(Debug)]
pub(crate) struct Redriven {
    pub id: LetterId,
    pub consumer: ConsumerId,
    /// Why it became a dead letter.
    pub reason: Reason,
    /// The message on a first delivery: the count that the broker had reached must not bury it again.
    pub received: Received,
    /// When it became a dead letter, by the database's clock.
    pub first_at: SystemTime,
    /// Whether its message may run however old it is: its key's claims aren't pruned while it is open, or an operator
    /// has forced it.
    pub at_any_age: bool,
}

impl<Db: Store> Inbox<Db> {
    /// Takes letters that are due, and keeps other processes from them for the length of the lease.
    pub(crate) async fn take_redriven(
        &self,
        consumers: &[ConsumerId],
        limit: u32,
        lease: Duration,
    ) -> Result<Vec<Redriven>, Error> {
        if consumers.is_empty() {
            return Ok(Vec::new());
        }
        let places = vec!["?"; consumers.len()].join(", ");
        let due =
            format!("letter.state = 'redrive' AND letter.redrive_at <= {{now}} AND letter.consumer IN ({places})");
        let consumers = consumers.iter().copied().map(Value::from).collect::<Vec<_>>();
        // Looked at without the writer first: mostly nothing is due.
        let any = format!("SELECT 1 FROM {{dead_letters}} AS letter WHERE {due} LIMIT 1");
        if self.read(&any, consumers.clone()).await?.is_empty() {
            return Ok(Vec::new());
        }
        self.write(move |inbox, connection| {
            Box::pin(async move {
                let take = format!(
                    "SELECT {} WHERE {due} ORDER BY letter.redrive_at, letter.id LIMIT ?{}",
                    DeadLetter::COLUMNS,
                    Db::SKIP_LOCKED,
                );
                let mut arguments = consumers;
                arguments.push(limit.into());
                let rows = inbox.run(connection, &take, arguments).await?;
                let mut redriven = Vec::with_capacity(rows.len());
                for row in &rows {
                    let (consumer, letter) = DeadLetter::from_row(row)?;
                    hold(&inbox, connection, letter.id, lease).await?;
                    let at_any_age = letter.key.is_some() || letter.reason == Reason::TooOld;
                    let mut received = Received::new(letter.source, letter.body);
                    received.headers = letter.headers;
                    received.sent_at = letter.sent_at;
                    let (id, reason, first_at) = (letter.id, letter.reason, letter.first_at);
                    redriven.push(Redriven { id, consumer, reason, received, first_at, at_any_age });
                }
                Ok(redriven)
            })
        })
        .await
    }

    /// Gives a redriven letter back, to be taken again no sooner than after the delay.
    pub(crate) async fn postpone_letter(&self, id: LetterId, delay: Duration) -> Result<(), Error> {
        self.write(move |inbox, connection| Box::pin(async move { hold(&inbox, connection, id, delay).await })).await
    }

    /// Closes a redriven letter whose message turned out to be handled before.
    pub(crate) async fn close_letter(&self, id: LetterId) -> Result<(), Error> {
        self.write(move |inbox, connection| Box::pin(async move { inbox.mark_duplicate(connection, id).await })).await
    }
}

async fn hold<Db: Store>(
    inbox: &Inbox<Db>,
    connection: &mut Db::Connection,
    id: LetterId,
    delay: Duration,
) -> Result<(), Error> {
    let hold = "UPDATE {dead_letters} SET redrive_at = {now} + ? WHERE id = ? AND state = 'redrive'";
    inbox.run(connection, hold, vec![clock::microseconds(delay).into(), id.into()]).await?;
    Ok(())
}
