//! What the database itself refuses while a body runs: its own COMMIT, and a statement beyond the deadline.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::SqliteConnection;

/// Instructions of SQLite's machine between two looks at the clock: some microseconds.
const INSTRUCTIONS: i32 = 2_000;

const FREE: u8 = 0;
const GUARDED: u8 = 1;
const CUT: u8 = 2;

/// The state that SQLite's callbacks look at. Nothing is refused until a body is guarded.
#[derive(Clone, Debug, Default)]
pub(super) struct Fuse {
    state: Arc<AtomicU8>,
    deadline: Arc<Mutex<Option<Instant>>>,
}

impl Fuse {
    /// Sets the callbacks on a connection. A statement runs between this and [`Fuse::unset`]: sqlx leaves one command
    /// queued for each lock, only statements drain them, and the fiftieth would wait for ever.
    pub(super) async fn set(&self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let (committing, running) = (self.clone(), self.clone());
        let mut handle = connection.lock_handle().await?;
        handle.set_commit_hook(move || committing.state.load(Ordering::Acquire) == FREE);
        handle.set_progress_handler(INSTRUCTIONS, move || running.may_go_on());
        Ok(())
    }

    /// Takes the callbacks away, as the user's pool had it.
    pub(super) async fn unset(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let mut handle = connection.lock_handle().await?;
        handle.remove_commit_hook();
        handle.remove_progress_handler();
        Ok(())
    }

    /// Refuses each COMMIT from now on, and each statement from the deadline on.
    pub(super) fn guard(&self, run: Duration) {
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now().checked_add(run);
        self.state.store(GUARDED, Ordering::Release);
    }

    /// Lets our own COMMIT through.
    pub(super) fn free(&self) {
        self.state.store(FREE, Ordering::Release);
    }

    /// Ends what runs on the connection, and lets nothing be committed any more.
    pub(super) fn cut(&self) {
        self.state.store(CUT, Ordering::Release);
    }

    fn may_go_on(&self) -> bool {
        match self.state.load(Ordering::Acquire) {
            FREE => true,
            CUT => false,
            _ => {
                let deadline = *self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
                deadline.is_none_or(|deadline| Instant::now() < deadline)
            }
        }
    }
}
