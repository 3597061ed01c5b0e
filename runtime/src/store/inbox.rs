//! The inbox: a database's pool and the names of its tables.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use sqlx::Pool;

use super::dead_letters::DeadLetters;
use super::schema::{Risk, SchemaError, fill};
use super::tables::{DEFAULT_PREFIX, Tables};
use super::{CommitError, Limits, RegistryError, Row, Store, Value, clock};
use crate::error::{Class, Error};

/// The tables that remember which messages were handled, in the database that the handlers write to. Cheap to clone.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// use inboxed_runtime::Inbox;
///
/// # let folder = tempfile::tempdir()?;
/// # let url = format!("sqlite://{}", folder.path().join("shop.db").display());
/// let inbox = Inbox::<sqlx::Sqlite>::connect(&url).await?;
/// inbox.migrate().await?;
/// inbox.verify().await?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Inbox<Db: Store> {
    inner: Arc<Inner<Db>>,
}

struct Inner<Db: Store> {
    pool: Db::Pool,
    shared: Db::Shared,
    tables: Tables,
    allowed: Vec<Risk>,
}

impl<Db: Store> Clone for Inbox<Db> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<Db: Store> fmt::Debug for Inbox<Db> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox")
            .field("database", &Db::TITLE)
            .field("tables", &self.inner.tables)
            .finish_non_exhaustive()
    }
}

/// Why an inbox can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The URL is another database's.
    #[error(
        "the handlers take a {expected} connection, so this is an `Inbox<{expected}>`; the URL says `{found}`: give a URL \
         that starts with `{scheme}:`, or change the handlers' transaction parameter"
    )]
    Scheme {
        /// The database that the handlers take.
        expected: &'static str,
        /// A scheme that fits.
        scheme: &'static str,
        /// The scheme of the URL. The rest of it may hold a password and isn't shown.
        found: String,
    },
    /// The database can't be reached or opened.
    #[error("the inbox's database can't be opened ({0}): check the URL, and that the server or the folder is there")]
    Connect(#[source] sqlx::Error),
    /// The prefix can't be part of a table's name on every database.
    #[error(
        "`{0}` can't be a prefix of table names: start with `a-z` or `_`, go on with `a-z`, `0-9` or `_`, at most 40"
    )]
    Prefix(String),
    /// The schema can't be named without escaping.
    #[error(
        "`{0}` can't be the schema of the inbox's tables: start with `a-z` or `_`, go on with `a-z`, `0-9` or `_`, at most 63"
    )]
    SchemaName(String),
    /// The server may forget a commit that it reported.
    #[error("the database may forget a commit that it reported, and a message would be lost: {}", super::schema::list(.0))]
    Risks(Vec<Risk>),
    /// The tables aren't those that this version needs.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// The handlers don't fit the rows that are there.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// A statement failed.
    #[error("the inbox's database refused a statement: {0}")]
    Database(Error),
}

impl From<Error> for StartError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

/// Settings of an inbox, by [`Inbox::options`].
pub struct InboxOptions<Db: Store> {
    schema: Option<String>,
    prefix: String,
    lean: bool,
    allowed: Vec<Risk>,
    max_connections: Option<u32>,
    database: std::marker::PhantomData<fn() -> Db>,
}

impl<Db: Store> fmt::Debug for InboxOptions<Db> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InboxOptions")
            .field("schema", &self.schema)
            .field("prefix", &self.prefix)
            .field("lean", &self.lean)
            .field("allowed", &self.allowed)
            .field("max_connections", &self.max_connections)
            .finish()
    }
}

impl<Db: Store> Default for InboxOptions<Db> {
    fn default() -> Self {
        let (schema, prefix) = (Db::DEFAULT_SCHEMA.map(str::to_owned), DEFAULT_PREFIX.to_owned());
        Self {
            schema,
            prefix,
            lean: false,
            allowed: Vec::new(),
            max_connections: None,
            database: std::marker::PhantomData,
        }
    }
}

impl<Db: Store> InboxOptions<Db> {
    /// What the tables' names begin with, `inbox` by default: `inbox`, `inbox_consumers`, and so on.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Keeps 16 bytes of the key's SHA-256 in each row, in place of its text: smaller tables, whatever the keys' length.
    ///
    /// Say so before the first [`Inbox::migrate`]: tables with the keys' text are refused, and the other way round. Dead
    /// letters and attempts keep the text. Two keys of one digest would be one message, whose second is taken for a
    /// duplicate: with a million million keys the chance of any such pair is below 1 in 10¹⁴, and somebody who chooses
    /// the keys has to try 2⁶⁴ of them.
    ///
    /// ```
    /// # #[cfg(feature = "sqlite")]
    /// # tokio::runtime::Runtime::new()?.block_on(async {
    /// use inboxed_runtime::Inbox;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// # let url = format!("sqlite://{}", folder.path().join("shop.db").display());
    /// let inbox = Inbox::<sqlx::Sqlite>::options().lean().connect(&url).await?;
    /// inbox.migrate().await?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn lean(mut self) -> Self {
        self.lean = true;
        self
    }

    /// Starts in spite of this risk: a crash of the machine may then lose messages.
    pub fn allow(mut self, risk: Risk) -> Self {
        self.allowed.push(risk);
        self
    }

    /// The most connections of the inbox's own pool.
    pub fn max_connections(mut self, most: u32) -> Self {
        self.max_connections = Some(most.max(1));
        self
    }

    /// The schema of the tables, for databases that have one.
    #[cfg(feature = "postgres")]
    pub(crate) fn in_schema(mut self, schema: String) -> Self {
        self.schema = Some(schema);
        self
    }

    pub(crate) fn most_connections(&self) -> Option<u32> {
        self.max_connections
    }

    /// Opens a pool of the inbox's own.
    pub async fn connect(self, url: &str) -> Result<Inbox<Db>, StartError> {
        let scheme = url.split(':').next().unwrap_or_default();
        if !Db::SCHEMES.contains(&scheme) {
            let expected = Db::SCHEMES.first().copied().unwrap_or_default();
            return Err(StartError::Scheme { expected: Db::TITLE, scheme: expected, found: scheme.to_owned() });
        }
        let tables = self.tables()?;
        let pool = Db::connect(url, &self).await?;
        Ok(Inbox::assemble(pool, true, tables, self.allowed))
    }

    pub(crate) fn tables(&self) -> Result<Tables, StartError> {
        Tables::new(self.schema.as_deref(), &self.prefix, self.lean)
    }
}

impl<Db: Store<Pool = Pool<Db>> + sqlx::Database> InboxOptions<Db> {
    /// Uses the user's pool, and sets nothing on its connections that outlives a transaction.
    pub fn with_pool(self, pool: Pool<Db>) -> Result<Inbox<Db>, StartError> {
        let tables = self.tables()?;
        Ok(Inbox::assemble(pool, false, tables, self.allowed))
    }
}

impl<Db: Store<Pool = Pool<Db>> + sqlx::Database> Inbox<Db> {
    /// An inbox over the user's pool.
    pub fn new(pool: Pool<Db>) -> Self {
        Self::assemble(pool, false, Tables::by_default(Db::DEFAULT_SCHEMA), Vec::new())
    }

    /// The pool, for queries beside the handlers. What a handler writes through it isn't part of its transaction.
    pub fn pool(&self) -> &Pool<Db> {
        &self.inner.pool
    }
}

impl<Db: Store> Inbox<Db> {
    /// Opens a pool of the inbox's own, with the session settings it needs. A missing SQLite file is created.
    pub async fn connect(url: &str) -> Result<Self, StartError> {
        Self::options().connect(url).await
    }

    /// Settings, before connecting.
    pub fn options() -> InboxOptions<Db> {
        InboxOptions::default()
    }

    fn assemble(pool: Db::Pool, own: bool, tables: Tables, allowed: Vec<Risk>) -> Self {
        let tables = tables.within(Db::qualifier(&pool));
        let shared = Db::shared(&pool, own);
        Self { inner: Arc::new(Inner { pool, shared, tables, allowed }) }
    }

    /// The dead letters, for operators.
    pub fn dead_letters(&self) -> DeadLetters<Db> {
        DeadLetters::new(self.clone())
    }

    /// The time by the database's clock, which alone decides about ages and leases.
    pub async fn now(&self) -> Result<SystemTime, Error> {
        let rows = self.read("SELECT {now}", Vec::new()).await?;
        Ok(clock::time(rows.first().ok_or(sqlx::Error::RowNotFound)?.int(0)?))
    }

    /// Refuses a server that may forget a commit that it reported, unless [`InboxOptions::allow`] names the risk.
    pub async fn check_risks(&self) -> Result<(), StartError> {
        let risks = Db::risks(self).await?;
        let refused = risks.into_iter().filter(|risk| !self.inner.allowed.contains(risk)).collect::<Vec<_>>();
        if refused.is_empty() { Ok(()) } else { Err(StartError::Risks(refused)) }
    }

    /// A connection of the pool, for reading.
    pub(crate) async fn acquire(&self) -> Result<Db::Pooled, sqlx::Error> {
        Db::acquire(&self.inner.pool).await
    }

    pub(crate) fn shared(&self) -> &Db::Shared {
        &self.inner.shared
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.inner.tables
    }

    /// A statement with the tables' names and the database's clock filled in.
    pub(crate) fn sql(&self, template: &str) -> String {
        self.inner.tables.sql(template).replace("{now}", Db::NOW)
    }

    /// As [`Inbox::sql`], for a statement that makes tables: with the lines of this kind of inbox only.
    pub(crate) fn ddl(&self, template: &str) -> String {
        fill::<Db>(self.tables(), template)
    }

    /// The facts that must be found of a table, without those of the other kind of inbox.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(crate) fn facts_of_kind(&self, facts: &[&str]) -> std::collections::BTreeSet<String> {
        facts.iter().map(|fact| self.ddl(fact)).filter(|fact| !fact.is_empty()).collect()
    }

    /// Runs one statement of a bookkeeping transaction.
    pub(crate) async fn run(
        &self,
        connection: &mut Db::Connection,
        template: &str,
        arguments: Vec<Value>,
    ) -> Result<Vec<Row>, Error> {
        Ok(Db::run(connection, &self.sql(template), arguments).await?)
    }

    /// Runs one reading statement on a connection of the pool, in a task of its own: sqlx's waiting for a connection
    /// can't be cancelled safely.
    pub(crate) async fn read(&self, template: &str, arguments: Vec<Value>) -> Result<Vec<Row>, Error> {
        let (inbox, sql) = (self.clone(), self.sql(template));
        let read = async move { Ok(Db::run(&mut *inbox.acquire().await?, &sql, arguments).await?) };
        tokio::spawn(read).await.unwrap_or_else(|stopped| Err(Error::with_class(stopped, Class::Unavailable)))
    }

    /// Runs a bookkeeping transaction to its end, even if the caller stops waiting: BEGIN and COMMIT can't be cancelled
    /// safely in sqlx.
    pub(crate) async fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        F: for<'c> FnOnce(Self, &'c mut Db::Connection) -> BoxFuture<'c, Result<T, E>> + Send + 'static,
    {
        self.write_in(|inbox| Box::pin(async move { Ok(Db::begin(inbox, &[], Limits::BOOKKEEPING).await?.0) }), work)
            .await
    }

    /// As [`Inbox::write`], in a transaction that is begun otherwise.
    pub(crate) async fn write_in<T, E, B, F>(&self, begin: B, work: F) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<Error> + Send + 'static,
        B: for<'i> FnOnce(&'i Self) -> BoxFuture<'i, Result<Db::Tx, Error>> + Send + 'static,
        F: for<'c> FnOnce(Self, &'c mut Db::Connection) -> BoxFuture<'c, Result<T, E>> + Send + 'static,
    {
        let inbox = self.clone();
        let transaction = async move {
            let mut tx = begin(&inbox).await?;
            match work(inbox, &mut tx).await {
                Ok(answer) => match Db::commit(tx).await {
                    Ok(()) => Ok(answer),
                    Err(CommitError::Refused(error) | CommitError::Unknown(error)) => Err(error.into()),
                },
                Err(error) => {
                    Db::rollback(tx).await;
                    Err(error)
                }
            }
        };
        match tokio::spawn(transaction).await {
            Ok(answer) => answer,
            Err(stopped) => Err(Error::with_class(stopped, Class::Unavailable).into()),
        }
    }
}

#[cfg(feature = "testing")]
impl Inbox<crate::testing::NoStore> {
    pub(crate) fn without_database() -> Self {
        Self::assemble((), true, Tables::by_default(None), Vec::new())
    }
}

impl Limits {
    /// The deadlines of the inbox's own short transactions.
    pub(crate) const BOOKKEEPING: Self = Self { claim: Duration::from_secs(10), run: Duration::from_secs(10) };
}
