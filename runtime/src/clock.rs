//! The database's clock, by which ages are judged: application clocks differ from each other.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How far the database's clock is ahead of this machine's, in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Clock(AtomicI64);

impl Clock {
    /// Takes the database's time, just read.
    pub(crate) fn set(&self, database: SystemTime) {
        self.0.store(micros(database) - micros(SystemTime::now()), Ordering::Relaxed);
    }

    /// How old something is by the database's clock; zero if it lies ahead of it.
    pub(crate) fn age(&self, since: SystemTime) -> Duration {
        let now = micros(SystemTime::now()) + self.0.load(Ordering::Relaxed);
        Duration::from_micros(u64::try_from(now - micros(since)).unwrap_or_default())
    }
}

fn micros(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX / 2)
}
