//! A new dead letter, written inside the transaction that holds its claim.

use sha2::{Digest, Sha256};

use super::{LetterId, Reason};
use crate::error::Error;
use crate::key::Key;
use crate::message::Received;
use crate::store::attempts::storable;
use crate::store::registry::ConsumerId;
use crate::store::value::hex;
use crate::store::{Claim, Inbox, Store, Value, clock};

/// A message that won't be tried again.
#[derive(Clone, Debug)]
pub(crate) struct NewLetter<'a> {
    /// Whose message it is.
    pub consumer: ConsumerId,
    /// What makes two letters of a consumer one.
    pub identity: LetterIdentity,
    /// The message.
    pub received: &'a Received,
    /// Why.
    pub reason: Reason,
    /// The last error's text.
    pub error: &'a str,
    /// The attempts that it had.
    pub attempts: u32,
    /// The letter that it was redriven from.
    pub redriven: Option<LetterId>,
}

/// What makes two letters of a consumer one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LetterIdentity {
    /// The message's key.
    Key(Key),
    /// A key that was committed with another payload than this.
    Conflict(Key, i64),
    /// Digests of the source, and of the exact bytes and headers of a message that has no key.
    Bytes(String),
}

impl LetterIdentity {
    /// The identity of a message that has no key.
    pub(crate) fn of_bytes(received: &Received) -> Self {
        let source = Sha256::digest(received.source.as_bytes());
        // A message may stand in its headers alone.
        let mut message = Sha256::new_with_prefix(&received.body);
        for (name, value) in received.headers.iter() {
            for part in [name.as_bytes(), value] {
                message.update(part.len().to_be_bytes());
                message.update(part);
            }
        }
        Self::Bytes(format!("{}/{}", hex(&source[..8]), hex(&message.finalize())))
    }

    fn key(&self) -> Option<&Key> {
        match self {
            Self::Key(key) | Self::Conflict(key, _) => Some(key),
            Self::Bytes(_) => None,
        }
    }

    /// The column's text. The prefixes keep the kinds apart.
    fn column(&self) -> String {
        match self {
            Self::Key(key) => key_identity(key.as_str()),
            Self::Conflict(key, payload) => format!("conflict/{key}/{payload:016x}"),
            Self::Bytes(digests) => format!("bytes/{digests}"),
        }
    }
}

/// The identity of the letter of a message that has a key.
pub(crate) fn key_identity(key: &str) -> String {
    format!("key/{key}")
}

impl NewLetter<'_> {
    /// Writes the letter, gives the claim up, and keeps a row of attempts that tells a later success of the letter.
    pub(crate) async fn insert_and_unclaim<Db: Store>(
        &self,
        inbox: &Inbox<Db>,
        connection: &mut Db::Connection,
        claim: Option<&Claim>,
    ) -> Result<(), Error> {
        let id = self.upsert(inbox, connection, claim).await?;
        for key in claim.iter().flat_map(|claim| claim.keys()) {
            let unclaim = "DELETE FROM {inbox} WHERE consumer = ? AND message_key = ?";
            inbox.run(connection, unclaim, vec![self.consumer.into(), inbox.held_of(key)]).await?;
        }
        if let Some(claim) = claim {
            let mark = format!(
                "INSERT INTO {{attempts}} (consumer, {{key_columns}}, failures, starts, last_error, updated_at) \
                 VALUES (?, {{key_places}}, ?, 0, ?, {{now}}) {} starts = 0, updated_at = {}",
                Db::on_conflict("consumer, message_key"),
                Db::incoming("updated_at"),
            );
            let mut arguments = vec![self.consumer.into()];
            arguments.extend(inbox.key_values(Some(claim.identity.name())));
            arguments.extend([self.attempts.into(), storable(self.error).into()]);
            inbox.run(connection, &mark, arguments).await?;
        }
        match self.redriven {
            Some(redriven) if redriven != id => inbox.mark_done(connection, redriven).await,
            _ => Ok(()),
        }
    }

    /// Closes the letter that the message was redriven from: it is a duplicate, so nothing else is written.
    pub(crate) async fn close_redriven<Db: Store>(
        &self,
        inbox: &Inbox<Db>,
        connection: &mut Db::Connection,
    ) -> Result<(), Error> {
        match self.redriven {
            Some(redriven) => inbox.mark_duplicate(connection, redriven).await,
            None => Ok(()),
        }
    }

    /// What makes the letter one with another. Two messages that failed under one key, neither of them handled, are two
    /// letters: the second must not take the first one's place.
    async fn identity<Db: Store>(
        &self,
        inbox: &Inbox<Db>,
        connection: &mut Db::Connection,
        claim: Option<&Claim>,
    ) -> Result<String, Error> {
        let identity = self.identity.column();
        let (LetterIdentity::Key(key), Some(claim)) = (&self.identity, claim) else { return Ok(identity) };
        let open = "SELECT id, body FROM {dead_letters} \
                    WHERE consumer = ? AND identity = ? AND state IN ('open', 'redrive')";
        let rows = inbox.run(connection, open, vec![self.consumer.into(), identity.as_str().into()]).await?;
        let Some(row) = rows.first() else { return Ok(identity) };
        let same = self.redriven == Some(LetterId(row.int(0)?)) || row.blob(1)? == &self.received.body[..];
        Ok(if same { identity } else { LetterIdentity::Conflict(key.clone(), claim.payload).column() })
    }

    async fn upsert<Db: Store>(
        &self,
        inbox: &Inbox<Db>,
        connection: &mut Db::Connection,
        claim: Option<&Claim>,
    ) -> Result<LetterId, Error> {
        let identity = self.identity(inbox, connection, claim).await?;
        let renewed =
            ["message_key", "source", "body", "headers", "reason", "error", "attempts", "sent_at", "updated_at"]
                .map(|column| format!("{column} = {}", Db::incoming(column)))
                .join(", ");
        let upsert = format!(
            "INSERT INTO {{dead_letters}} (consumer, identity, {{key_columns}}, source, body, headers, reason, error, \
             attempts, state, sent_at, first_at, updated_at, redrive_at) \
             VALUES (?, ?, {{key_places}}, ?, ?, ?, ?, ?, ?, 'open', ?, {{now}}, {{now}}, NULL) \
             {} {renewed}, state = 'open', redrive_at = NULL",
            Db::on_conflict("consumer, identity"),
        );
        let received = self.received;
        let mut arguments = vec![self.consumer.into(), identity.as_str().into()];
        arguments.extend(inbox.key_values(self.identity.key()));
        arguments.extend([
            received.source.as_ref().into(),
            Value::Blob(received.body.to_vec()),
            Value::Blob(serde_json::to_vec(&received.headers)?),
            self.reason.as_str().into(),
            storable(self.error).into(),
            self.attempts.into(),
            received.sent_at.map(clock::column).into(),
        ]);
        inbox.run(connection, &upsert, arguments).await?;
        let find = "SELECT id FROM {dead_letters} WHERE consumer = ? AND identity = ?";
        let rows = inbox.run(connection, find, vec![self.consumer.into(), identity.into()]).await?;
        Ok(LetterId(rows.first().ok_or(sqlx::Error::RowNotFound)?.int(0)?))
    }
}

impl<Db: Store> Inbox<Db> {
    /// Marks a letter's message as handled, inside a transaction.
    pub(crate) async fn mark_done(&self, connection: &mut Db::Connection, letter: LetterId) -> Result<(), Error> {
        let close = "UPDATE {dead_letters} SET state = 'done', redrive_at = NULL, updated_at = {now} WHERE id = ?";
        self.run(connection, close, vec![letter.into()]).await?;
        Ok(())
    }

    /// As [`Inbox::mark_done`], for a message that was handled before: its key's attempts, renewed by the redrive, go too.
    pub(crate) async fn mark_duplicate(&self, connection: &mut Db::Connection, letter: LetterId) -> Result<(), Error> {
        let forget = "DELETE FROM {attempts} WHERE consumer = (SELECT consumer FROM {dead_letters} WHERE id = ?) \
                      AND message_key = (SELECT message_key FROM {dead_letters} WHERE id = ?)";
        self.run(connection, forget, vec![letter.into(), letter.into()]).await?;
        self.mark_done(connection, letter).await
    }
}
