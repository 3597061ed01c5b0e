//! What the database itself refuses while a body runs: its own COMMIT, and a statement beyond the deadline.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use sqlx::SqliteConnection;

/// Instructions of SQLite's machine between two looks at the clock: some microseconds.
const INSTRUCTIONS: i32 = 2_000;

const GUARDED: u8 = 0;
const COMMITTING: u8 = 1;
const CUT: u8 = 2;

/// The state that SQLite's callbacks look at.
#[derive(Clone, Debug)]
pub(super) struct Fuse {
    state: Arc<AtomicU8>,
    deadline: Option<Instant>,
}

impl Fuse {
    pub(super) fn new(run: Duration) -> Self {
        Self { state: Arc::new(AtomicU8::new(GUARDED)), deadline: Instant::now().checked_add(run) }
    }

    /// Sets the callbacks on a connection. A statement runs between this and [`Fuse::disarm`]: sqlx leaves one command
    /// queued for each lock, only statements drain them, and the fiftieth would wait for ever.
    pub(super) async fn arm(&self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let (committing, running) = (self.clone(), self.clone());
        let mut handle = connection.lock_handle().await?;
        handle.set_commit_hook(move || committing.state.load(Ordering::Acquire) == COMMITTING);
        handle.set_progress_handler(INSTRUCTIONS, move || running.may_go_on());
        Ok(())
    }

    /// Takes the callbacks away, as the user's pool had it.
    pub(super) async fn disarm(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let mut handle = connection.lock_handle().await?;
        handle.remove_commit_hook();
        handle.remove_progress_handler();
        Ok(())
    }

    /// Lets our own COMMIT through.
    pub(super) fn allow_commit(&self) {
        self.state.store(COMMITTING, Ordering::Release);
    }

    /// Ends what runs on the connection, and lets nothing be committed any more.
    pub(super) fn cut(&self) {
        self.state.store(CUT, Ordering::Release);
    }

    fn may_go_on(&self) -> bool {
        match self.state.load(Ordering::Acquire) {
            COMMITTING => true,
            CUT => false,
            _ => self.deadline.is_none_or(|deadline| Instant::now() < deadline),
        }
    }
}
