//! Times in the tables: microseconds since 1970 by the database's clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The time that a column holds.
pub(crate) fn time(microseconds: i64) -> SystemTime {
    let distance = Duration::from_micros(microseconds.unsigned_abs());
    let time = if microseconds < 0 { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
    time.unwrap_or(UNIX_EPOCH)
}

/// A time as a column holds it.
pub(crate) fn column(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(after) => microseconds(after),
        Err(before) => -microseconds(before.duration()),
    }
}

/// A length of time in a column's unit.
pub(crate) fn microseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX / 4)
}
