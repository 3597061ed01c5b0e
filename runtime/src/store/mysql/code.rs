//! MySQL's and MariaDB's error numbers.

use crate::error::Class;

/// A row with this key is there already.
pub(super) const DUPLICATE_KEY: u16 = 1062;
/// An expression's value is beyond its type.
pub(super) const OUT_OF_RANGE: u16 = 1690;
/// XA refuses the statement in its present state.
pub(super) const XA_STATE: u16 = 1399;
/// Work was begun on the session outside of XA.
pub(super) const XA_OUTSIDE: u16 = 1400;
/// The isolation of the next transaction can't be set in the middle of one.
pub(super) const IN_TRANSACTION: u16 = 1568;

/// The class of an error number; `None` if the statement itself is at fault. Our own deadline's 1969 (MariaDB) and 3024
/// (MySQL) are the body's failure.
pub(in crate::store) fn class_of_code(number: u16) -> Option<Class> {
    match number {
        // Record changed; deadlock; rolled back, the second time it is told in XA; refused by the group at its commit.
        1020 | 1213 | 1402 | 1614 | 3101 => Some(Class::Contention),
        // Waited too long for a lock, plain and in XA.
        1205 | 1613
        // Out of disk, memory, table space, connections.
        | 1021 | 1037 | 1038 | 1040 | 1041 | 1114 | 1135 | 1203 | 1226
        // Not ready, shutting down, killed, interrupted, idle too long; broken connections.
        | 1047 | 1053 | 1152 | 1158..=1161 | 1317 | 1927 | 4031
        // Read-only after a failover; an error while committing.
        | 1180 | 1290 | 1792 | 1836 | 1874 => Some(Class::Unavailable),
        _ => None,
    }
}

/// The server's number of an error, if the server sent it.
pub(super) fn number(error: &sqlx::Error) -> Option<u16> {
    let error = error.as_database_error()?.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>()?;
    Some(error.number())
}

/// Whether XA says that the database itself has rolled the transaction back: for whatever reason, a deadlock, a timeout.
pub(super) fn ended_by_database(error: &sqlx::Error) -> bool {
    matches!(number(error), Some(1402 | 1613 | 1614))
}
