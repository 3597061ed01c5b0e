//! What an operator does with dead letters.

use super::{DeadLetter, DeadLetterError, Filter, LetterId, LetterState, Reason};
use crate::error::Error;
use crate::key::Key;
use crate::store::{Inbox, Row, Store, Value, clock};

/// The dead letters of an inbox: [`Inbox::dead_letters`].
///
/// Redriving publishes nothing: the consumer takes the letter from the table, and the effect and the closing of the
/// letter are one transaction.
#[derive(Clone, Debug)]
pub struct DeadLetters<Db: Store> {
    inbox: Inbox<Db>,
}

impl<Db: Store> DeadLetters<Db> {
    pub(crate) fn new(inbox: Inbox<Db>) -> Self {
        Self { inbox }
    }

    /// Lists letters, the oldest first.
    pub async fn list(&self, filter: Filter) -> Result<Vec<DeadLetter>, DeadLetterError> {
        let mut sql = format!("SELECT {} WHERE 1 = 1", DeadLetter::COLUMNS);
        let mut arguments = Vec::<Value>::new();
        let mut only = |condition: &str, argument: Option<Value>| {
            if let Some(argument) = argument {
                sql.push_str(condition);
                arguments.push(argument);
            }
        };
        only(" AND letter.consumer = (SELECT id FROM {consumers} WHERE name = ?)", filter.consumer.map(Value::from));
        only(" AND letter.reason = ?", filter.reason.map(|reason| reason.as_str().into()));
        only(" AND letter.state = ?", filter.state.map(|state| state.as_str().into()));
        let age = filter.older_than.map(|age| clock::microseconds(age).into());
        only(" AND letter.updated_at <= {now} - ?", age);
        only(" ORDER BY letter.id LIMIT ?", Some(filter.limit.into()));
        let rows = self.inbox.read(&sql, arguments).await?;
        let letters = rows.iter().map(|row| DeadLetter::from_row(row).map(|(_, letter)| letter));
        Ok(letters.collect::<Result<_, sqlx::Error>>().map_err(Error::from)?)
    }

    /// One letter, if it is there.
    pub async fn get(&self, id: LetterId) -> Result<Option<DeadLetter>, DeadLetterError> {
        let get = format!("SELECT {} WHERE letter.id = ?", DeadLetter::COLUMNS);
        let rows = self.inbox.read(&get, vec![id.into()]).await?;
        let letter = rows.first().map(DeadLetter::from_row).transpose().map_err(Error::from)?;
        Ok(letter.map(|(_, letter)| letter))
    }

    /// How many letters wait for somebody to look at them.
    pub async fn count(&self) -> Result<u64, DeadLetterError> {
        let count = "SELECT COUNT(*) FROM {dead_letters} WHERE state = 'open'";
        let rows = self.inbox.read(count, Vec::new()).await?;
        let count = rows.first().ok_or(sqlx::Error::RowNotFound).and_then(|row| row.int(0));
        Ok(count.map_err(Error::from)?.unsigned_abs())
    }

    /// Has the letter handled again, with a fresh budget of attempts. A message that was handled meanwhile is noticed as
    /// a duplicate.
    ///
    /// # Errors
    /// [`DeadLetterError::TooOld`] for a letter whose duplicates can't be noticed any more.
    pub async fn redrive(&self, id: LetterId) -> Result<(), DeadLetterError> {
        self.change(id, LetterState::Redrive, false).await
    }

    /// As [`DeadLetters::redrive`], for a letter older than the window too: its message may run a second time.
    pub async fn redrive_forced(&self, id: LetterId) -> Result<(), DeadLetterError> {
        self.change(id, LetterState::Redrive, true).await
    }

    /// Decides that the letter needn't be handled. It stays in the table until it is pruned.
    pub async fn discard(&self, id: LetterId) -> Result<(), DeadLetterError> {
        self.change(id, LetterState::Discarded, true).await
    }

    async fn change(&self, id: LetterId, state: LetterState, forced: bool) -> Result<(), DeadLetterError> {
        self.inbox
            .write(move |inbox, connection| {
                Box::pin(async move {
                    let find = format!(
                        "SELECT consumer, message_key, reason, state, {{key_text}} FROM {{dead_letters}} WHERE id = ?{}",
                        Db::FOR_UPDATE
                    );
                    let rows = inbox.run(connection, &find, vec![id.into()]).await?;
                    let Some(row) = rows.first() else { return Err(DeadLetterError::Unknown(id)) };
                    let reason = row.text(2).map_err(Error::from)?;
                    // A letter that was done doesn't keep its key's claim: without that, its message would run again.
                    let forgotten = row.text(3).map_err(Error::from)? == LetterState::Done.as_str()
                        && row.0.get(1) != Some(&Value::Null)
                        && inbox.run(connection, CLAIMED, row.0[..2].to_vec()).await?.is_empty();
                    if (reason == Reason::TooOld.as_str() || forgotten) && !forced {
                        return Err(DeadLetterError::TooOld(id));
                    }
                    let update =
                        "UPDATE {dead_letters} SET state = ?, redrive_at = {now}, updated_at = {now} WHERE id = ?";
                    inbox.run(connection, update, vec![state.as_str().into(), id.into()]).await?;
                    if let Some(key) = row.optional(4, Row::text).map_err(Error::from)? {
                        let consumer = row.0[0].clone();
                        renew_budget(&inbox, connection, state, (consumer, Key::parse(key).map_err(Error::from)?)).await?;
                    }
                    Ok(())
                })
            })
            .await
    }
}

const CLAIMED: &str = "SELECT 1 FROM {inbox} WHERE consumer = ? AND message_key = ?";

/// A redriven key starts afresh, but keeps the row that tells of its letter; a discarded one needs none.
async fn renew_budget<Db: Store>(
    inbox: &Inbox<Db>,
    connection: &mut Db::Connection,
    state: LetterState,
    (consumer, key): (Value, Key),
) -> Result<(), Error> {
    let mut arguments = vec![consumer];
    let renew = if state == LetterState::Redrive {
        arguments.extend(inbox.key_values(Some(&key)));
        format!(
            "INSERT INTO {{attempts}} (consumer, {{key_columns}}, failures, starts, last_error, updated_at) \
             VALUES (?, {{key_places}}, 0, 0, '', {{now}}) {} failures = 0, starts = 0, updated_at = {}",
            Db::on_conflict("consumer, message_key"),
            Db::incoming("updated_at"),
        )
    } else {
        arguments.push(inbox.held_of(&key));
        "DELETE FROM {attempts} WHERE consumer = ? AND message_key = ?".to_owned()
    };
    inbox.run(connection, &renew, arguments).await?;
    Ok(())
}
