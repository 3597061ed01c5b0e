//! What a database brings to the comparison.

use std::path::PathBuf;

use inboxed::Consumer;
use inboxed::store::Store;

/// How many rows the effects are spread over.
pub(crate) const ACCOUNTS: u32 = 10_000;

/// A fresh database with the tables of both sides.
pub(crate) trait Contest: Sized + 'static {
    /// The database of the inbox.
    type Db: Store;

    /// The connection that a worker by hand holds.
    type Connection: Send + 'static;

    const NAME: &'static str;

    /// The ratio that is asked for if nothing else is.
    const LOWEST: f64;

    async fn open(workers: u32) -> anyhow::Result<Self>;

    /// What the server promises of a commit.
    async fn settings(&self) -> anyhow::Result<String>;

    /// A folder on the disk that commits are written to.
    async fn data(&self) -> anyhow::Result<PathBuf>;

    async fn connect(&self) -> anyhow::Result<Self::Connection>;

    /// One message by hand.
    fn by_hand(connection: &mut Self::Connection, body: &[u8]) -> impl Future<Output = anyhow::Result<()>> + Send;

    /// A consumer of the source `orders` with the same effect.
    fn consumer(&self) -> Consumer<Self::Db>;

    /// Messages a second by a tool that others trust, with the statements of the loop by hand, if there is one.
    async fn tool(&self, _round: u32) -> anyhow::Result<Option<f64>> {
        Ok(None)
    }

    async fn counts(&self) -> anyhow::Result<Counts>;

    /// Drops the database, also after a failed run.
    async fn discard(self) -> anyhow::Result<()>;
}

/// What is in the tables at the end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    /// The claims of `inboxed`.
    pub(crate) inboxed: i64,
    /// Those by hand, and by the tool.
    pub(crate) by_hand: i64,
    /// The effects of all.
    pub(crate) effects: i64,
}
