//! The database's clock, by which ages are judged: application clocks differ from each other.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The database's time as it was last read. From there it goes on by this machine's monotonic clock, which no one sets.
#[derive(Debug)]
pub(crate) struct Clock(Mutex<(SystemTime, Instant)>);

impl Default for Clock {
    /// This machine's clock, until the database's is read.
    fn default() -> Self {
        Self(Mutex::new((SystemTime::now(), Instant::now())))
    }
}

impl Clock {
    /// Takes the database's time, just read.
    pub(crate) fn set(&self, database: SystemTime) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (database, Instant::now());
    }

    /// How old something is by the database's clock; zero if it lies ahead of it.
    pub(crate) fn age(&self, since: SystemTime) -> Duration {
        let (database, read_at) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        database.duration_since(since).map_or_else(
            |ahead| read_at.elapsed().saturating_sub(ahead.duration()),
            |age| age.saturating_add(read_at.elapsed()),
        )
    }
}
