//! SQLite's result codes.

use crate::error::Class;

const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const READONLY: i32 = 8;
const IOERR: i32 = 10;
const FULL: i32 = 13;
const CANTOPEN: i32 = 14;
const PROTOCOL: i32 = 15;

/// The class of a result code; `None` if the statement itself is at fault. The low byte is the family, and the extended
/// codes, `SQLITE_BUSY_SNAPSHOT` among them, share it.
pub(in crate::store) fn class_of_code(code: i32) -> Option<Class> {
    match code & 0xff {
        BUSY | LOCKED => Some(Class::Contention),
        READONLY | IOERR | FULL | CANTOPEN | PROTOCOL => Some(Class::Unavailable),
        _ => None,
    }
}
