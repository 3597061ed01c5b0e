//! How the pipeline answers a database's error: by its code, never by its text.

use sqlx::error::DatabaseError;

use crate::error::Class;

/// The class of an error that sqlx returned, to the body or to the inbox.
pub(crate) fn classify(error: &sqlx::Error) -> Class {
    match error {
        sqlx::Error::Database(error) => by_code(&**error).unwrap_or(Class::Failure),
        sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::WorkerCrashed => Class::Unavailable,
        _ => Class::Failure,
    }
}

fn by_code(error: &dyn DatabaseError) -> Option<Class> {
    #[cfg(feature = "sqlite")]
    if error.try_downcast_ref::<sqlx::sqlite::SqliteError>().is_some() {
        return super::sqlite::class_of_code(error.code()?.parse().ok()?);
    }
    #[cfg(feature = "mysql")]
    if let Some(error) = error.try_downcast_ref::<sqlx::mysql::MySqlDatabaseError>() {
        return super::mysql::class_of_code(error.number());
    }
    #[cfg(feature = "postgres")]
    if error.try_downcast_ref::<sqlx::postgres::PgDatabaseError>().is_some() {
        return super::postgres::class_of_code(&error.code()?);
    }
    let _ = error;
    None
}
