//! Postgres' SQLSTATE codes.

use crate::error::Class;

/// The class of a code; `None` if the statement itself is at fault.
///
/// `57014` (a statement beyond its time) isn't here: it is the body's own deadline. Nor is `25006` (read-only): a server
/// that became a standby refuses the claim already, so in a body it is one that ended its transaction and went on.
pub(in crate::store) fn class_of_code(code: &str) -> Option<Class> {
    match code {
        // serialization_failure, deadlock_detected
        "40001" | "40P01" => Some(Class::Contention),
        // lock_not_available, idle_in_transaction_session_timeout, transaction_timeout
        "55P03" | "25P03" | "25P04" => Some(Class::Unavailable),
        // operator_intervention: shutdown, crash, starting up
        code if code.starts_with("57P") => Some(Class::Unavailable),
        // connection_exception, insufficient_resources, system_error (input and output)
        code if ["08", "53", "58"].contains(&code.get(..2)?) => Some(Class::Unavailable),
        _ => None,
    }
}

/// Whether a transaction that fails so is one that the body ended, or an error that it swallowed:
/// `no_active_sql_transaction`, `in_failed_sql_transaction`, a savepoint that isn't there, and our own guard's.
pub(super) fn tells_of_the_body(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| ["25P01", "25P02", "3B001", "2D000"].contains(&&*code))
}

/// Whether the server refused a startup parameter, as poolers do.
pub(super) fn refuses_parameter(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| code == "08P01")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_sorted_by_what_follows() {
        for code in ["40001", "40P01"] {
            assert_eq!(class_of_code(code), Some(Class::Contention), "{code}");
        }
        for code in
            ["55P03", "57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "53100", "53200", "53300", "08006", "58030"]
        {
            assert_eq!(class_of_code(code), Some(Class::Unavailable), "{code}");
        }
        for code in ["23505", "23503", "22021", "42P01", "57014", "25006", "25P02", "P0001", "", "5"] {
            assert_eq!(class_of_code(code), None, "{code}");
        }
    }
}
