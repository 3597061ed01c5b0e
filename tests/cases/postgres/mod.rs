//! Postgres: the faults of every database, and those behind a pooler.

#[path = "../faults/body.rs"]
mod body;
#[path = "../faults/claims.rs"]
mod claims;
#[path = "../faults/ddl.rs"]
mod ddl;
#[path = "../faults/deadlocks.rs"]
mod deadlocks;
#[path = "../faults/envelope.rs"]
mod envelope;
#[path = "../faults/held.rs"]
mod held;
#[path = "../faults/key.rs"]
mod key;
#[path = "../faults/limit.rs"]
mod limit;
#[path = "../faults/lock_waits.rs"]
mod lock_waits;
#[path = "../faults/replay.rs"]
mod replay;
#[path = "../faults/retry.rs"]
mod retry;
#[path = "../faults/shutdown.rs"]
mod shutdown;
#[path = "../faults/store.rs"]
mod store;
#[path = "../faults/window.rs"]
mod window;

mod pooler;

#[path = "../../common/postgres.rs"]
mod database;

pub(crate) use self::database::*;

/// Whether claims of different keys wait for each other.
pub(crate) const ONE_WRITER: bool = false;
/// Whether two bodies can each hold a row that the other wants.
pub(crate) const DEADLOCKS: bool = true;
/// Whether a body makes tables as a part of its transaction; it is refused otherwise.
pub(crate) const DDL_IN_BODIES: bool = true;
/// Whether transactions run on connections beside the pool's, so that a body finds that free.
pub(crate) const BODY_HAS_THE_POOL: bool = true;
/// How many rows are pruned in the middle of a load.
pub(crate) const OLD: u64 = 20_000;

/// Begins a transaction.
pub(crate) const BEGIN: &str = "BEGIN";
/// Makes a session wait for a lock for less than a body's time.
pub(crate) const HASTY: &str = "SET lock_timeout = '300ms'";
