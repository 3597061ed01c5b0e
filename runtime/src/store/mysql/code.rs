//! MySQL's and MariaDB's error numbers.

use crate::error::Class;

/// A row with this key is there already.
pub(super) const DUPLICATE_KEY: u16 = 1062;
/// A column that must have a value was given none.
pub(super) const NULL_REFUSED: u16 = 1048;
/// XA refuses the statement in its present state.
#[cfg(test)]
pub(super) const XA_STATE: u16 = 1399;

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

/// Whether an error says that the inbox's savepoint isn't there.
pub(super) fn lacks_savepoint(error: &sqlx::Error) -> bool {
    number(error) == Some(1305)
}

/// Whether XA refuses a statement: there is no such transaction, or it is in another state; nothing was done.
pub(super) fn is_of_xa(error: &sqlx::Error) -> bool {
    matches!(number(error), Some(1397..=1400))
}

/// Whether what was prepared on the session isn't there any more.
pub(super) fn is_not_prepared(error: &sqlx::Error) -> bool {
    number(error) == Some(1243)
}

/// Whether a session can't begin any more, where another one can: it was lost or ended; work was left open on it; it lacks
/// what was prepared on it; tables were locked on it; its server has become a replica.
pub(super) fn session_is_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) => true,
        _ => matches!(number(error), Some(1053 | 1099 | 1100 | 1243 | 1290 | 1397..=1400 | 1792 | 1836 | 1927 | 4031)),
    }
}
