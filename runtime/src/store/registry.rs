//! The consumers that have rows here: each one's sources and key template, so that a start notices a change of meaning.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use super::{Inbox, Row, Store, Value, clock};
use crate::error::Error;

/// The number by which rows name their consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConsumerId(pub(crate) i64);

impl From<ConsumerId> for Value {
    fn from(consumer: ConsumerId) -> Self {
        Self::Int(consumer.0)
    }
}

/// In a handler's place for messages that none takes; it can't be a handler's name.
pub(crate) const UNROUTED: &str = "*";

/// A handler as a start declares it.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub service: String,
    pub handler: String,
    pub sources: Vec<String>,
    pub key: String,
    pub previous_key: Option<String>,
}

impl Registration {
    /// The namespace of a service's messages that no handler takes.
    pub(crate) fn unrouted(service: &str) -> Self {
        let (service, handler, any) = (service.to_owned(), UNROUTED.to_owned(), "*".to_owned());
        Self { service, handler, sources: vec![any.clone()], key: any, previous_key: None }
    }

    fn name(&self) -> String {
        format!("{}/{}", self.service, self.handler)
    }
}

/// A consumer that has been here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Registered {
    /// The number by which rows name it.
    pub id: ConsumerId,
    /// `service/handler`.
    pub name: String,
    /// The sources it takes messages from.
    pub sources: Vec<String>,
    /// The key's template as written.
    pub key: String,
    /// When it was first here, by the database's clock.
    pub first_at: SystemTime,
    /// When it was last started, by the database's clock, to the hour.
    pub seen_at: SystemTime,
}

/// Why a handler doesn't fit the rows under its name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistryError {
    /// Under another key every redelivered message would be new.
    #[error(
        "the rows of `{consumer}` were made with the key {stored:?}, and the handler says {declared:?}: messages handled \
         before would run again. Say `previous_key = {stored:?}` beside the new key, or name the handler otherwise with \
         `consumer = \"…\"`"
    )]
    KeyChanged {
        /// `service/handler`.
        consumer: String,
        /// The template in the registry.
        stored: String,
        /// The template in the program.
        declared: String,
    },
    /// Two handlers under one name would take each other's messages for duplicates.
    #[error(
        "`{consumer}` takes messages from {stored}, and this program would give it those of {declared}: two handlers under \
         one name take each other's messages for duplicates. Name one otherwise with `consumer = \"…\"` or in \
         `Consumer::new`; if the source was renamed, call `Inbox::move_source({consumer:?}, …)` once"
    )]
    SourcesChanged {
        /// `service/handler`.
        consumer: String,
        /// The sources in the registry.
        stored: String,
        /// The sources in the program.
        declared: String,
    },
    /// The program names two handlers alike.
    #[error("two handlers of this program are called `{consumer}`: name one otherwise with `consumer = \"…\"`")]
    Twice {
        /// `service/handler`.
        consumer: String,
    },
    /// No consumer of that name has rows here.
    #[error("no consumer is called `{consumer}`: `Inbox::registered` lists them as `service/handler`")]
    Unknown {
        /// The name as given.
        consumer: String,
    },
    /// A statement failed.
    #[error("the registry of consumers can't be read or written: {0}")]
    Database(Error),
}

impl From<Error> for RegistryError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

impl<Db: Store> Inbox<Db> {
    /// Enters a program's handlers, or finds them, and answers their numbers in the same order.
    pub(crate) async fn register(&self, registrations: &[Registration]) -> Result<Vec<ConsumerId>, RegistryError> {
        let mut names = BTreeSet::new();
        if let Some(twice) = registrations.iter().find(|registration| !names.insert(registration.name())) {
            return Err(RegistryError::Twice { consumer: twice.name() });
        }
        if let Some(ids) = self.unchanged(registrations).await? {
            return Ok(ids);
        }
        let registrations = registrations.to_vec();
        self.write(move |inbox, connection| {
            Box::pin(async move {
                let mut ids = Vec::with_capacity(registrations.len());
                for registration in &registrations {
                    ids.push(enter(&inbox, connection, registration).await?);
                }
                Ok(ids)
            })
        })
        .await
    }

    /// Why a program's handlers wouldn't be entered, without entering any.
    pub(crate) async fn misfits(&self, registrations: &[Registration]) -> Vec<RegistryError> {
        match self.registered().await {
            Ok(stored) => {
                let misfit = |declared: &Registration| {
                    stored.iter().find(|stored| stored.name == declared.name())?.fits(declared).err()
                };
                registrations.iter().filter_map(misfit).collect()
            }
            Err(error) => vec![error],
        }
    }

    /// The numbers of handlers that are here as declared and were seen lately: then a start writes nothing, and needn't
    /// wait for a body that holds the write lock.
    async fn unchanged(&self, declared: &[Registration]) -> Result<Option<Vec<ConsumerId>>, RegistryError> {
        let (stored, now) = (self.registered().await?, self.now().await?);
        let same = |declared: &Registration| {
            stored.iter().find(|stored| {
                stored.name == declared.name()
                    && stored.key == declared.key
                    && stored.sources.iter().collect::<BTreeSet<_>>() == declared.sources.iter().collect()
                    && now.duration_since(stored.seen_at).is_ok_and(|since| since < SEEN_LATELY)
            })
        };
        Ok(declared.iter().map(|declared| same(declared).map(|stored| stored.id)).collect())
    }

    /// Notes that this consumer was seen just now.
    pub(crate) async fn note_seen(&self, consumer: ConsumerId) -> Result<(), Error> {
        self.write(move |inbox, connection| {
            Box::pin(async move {
                let seen = "UPDATE {consumers} SET seen_at = {now} WHERE id = ?";
                inbox.run(connection, seen, vec![consumer.into()]).await?;
                Ok(())
            })
        })
        .await
    }

    /// The consumers that have ever been started here, by name.
    pub async fn registered(&self) -> Result<Vec<Registered>, RegistryError> {
        let list = format!("{SELECT} ORDER BY name");
        let rows = self.read(&list, Vec::new()).await?;
        let consumers = rows.iter().map(Registered::from_row).collect::<Result<Vec<_>, sqlx::Error>>();
        Ok(consumers.map_err(Error::from)?)
    }

    /// Says that the consumer's source has a new name, so that the next start under it isn't refused. `consumer` is
    /// `service/handler`.
    pub async fn move_source(&self, consumer: &str, source: &str) -> Result<(), RegistryError> {
        let (name, source) = (consumer.to_owned(), source.to_owned());
        self.write(move |inbox, connection| {
            Box::pin(async move {
                let Some(stored) = find(&inbox, connection, &name).await? else {
                    return Err(RegistryError::Unknown { consumer: name });
                };
                let moved = "UPDATE {consumers} SET sources = ?, seen_at = {now} WHERE id = ?";
                inbox.run(connection, moved, vec![source.into(), stored.id.into()]).await?;
                Ok(())
            })
        })
        .await
    }
}

/// How exactly it is kept when a consumer was last started.
const SEEN_LATELY: Duration = Duration::from_hours(1);

const SELECT: &str = "SELECT id, name, sources, key_template, first_at, seen_at FROM {consumers}";

impl Registered {
    fn from_row(row: &Row) -> Result<Self, sqlx::Error> {
        Ok(Self {
            id: ConsumerId(row.int(0)?),
            name: row.text(1)?.to_owned(),
            sources: row.text(2)?.lines().map(str::to_owned).collect(),
            key: row.text(3)?.to_owned(),
            first_at: clock::time(row.int(4)?),
            seen_at: clock::time(row.int(5)?),
        })
    }

    /// Refuses a handler of this name that would make the rows mean something else.
    fn fits(&self, declared: &Registration) -> Result<(), RegistryError> {
        if self.key != declared.key && declared.previous_key.as_ref() != Some(&self.key) {
            return Err(RegistryError::KeyChanged {
                consumer: self.name.clone(),
                stored: self.key.clone(),
                declared: declared.key.clone(),
            });
        }
        let sources = declared.sources.iter().map(String::as_str).collect::<BTreeSet<_>>();
        if !self.sources.is_empty() && !self.sources.iter().any(|source| sources.contains(source.as_str())) {
            return Err(RegistryError::SourcesChanged {
                consumer: self.name.clone(),
                stored: self.sources.join(", "),
                declared: sources.into_iter().collect::<Vec<_>>().join(", "),
            });
        }
        Ok(())
    }
}

async fn find<Db: Store>(
    inbox: &Inbox<Db>,
    connection: &mut Db::Connection,
    name: &str,
) -> Result<Option<Registered>, Error> {
    let find = format!("{SELECT} WHERE name = ?");
    let rows = inbox.run(connection, &find, vec![name.into()]).await?;
    Ok(rows.first().map(Registered::from_row).transpose()?)
}

/// Enters one handler, or the reason why it doesn't fit what is there.
async fn enter<Db: Store>(
    inbox: &Inbox<Db>,
    connection: &mut Db::Connection,
    declared: &Registration,
) -> Result<ConsumerId, RegistryError> {
    let name = declared.name();
    let sources = declared.sources.iter().map(String::as_str).collect::<BTreeSet<_>>();
    let joined = sources.into_iter().collect::<Vec<_>>().join("\n");
    // The upsert that changes nothing locks the row, so that two starts on a server can't both find none.
    let insert = format!(
        "INSERT INTO {{consumers}} (name, sources, key_template, first_at, seen_at, pruned_at) \
         VALUES (?, ?, ?, {{now}}, {{now}}, 0) {} seen_at = {}",
        Db::on_conflict("name"),
        Db::incoming("seen_at"),
    );
    let arguments = vec![name.as_str().into(), joined.as_str().into(), declared.key.as_str().into()];
    inbox.run(connection, &insert, arguments).await?;
    let stored = find(inbox, connection, &name).await?.ok_or_else(|| Error::from(sqlx::Error::RowNotFound))?;
    stored.fits(declared)?;
    let update = "UPDATE {consumers} SET sources = ?, key_template = ? WHERE id = ?";
    inbox.run(connection, update, vec![joined.into(), declared.key.as_str().into(), stored.id.into()]).await?;
    Ok(stored.id)
}
