//! `SQLite`: the faults of every database, and those of its one writer.

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

mod busy;
mod writer;

pub(crate) use crate::common::sqlite::*;

/// Whether claims of different keys wait for each other.
pub(crate) const ONE_WRITER: bool = true;
/// Whether two bodies can each hold a row that the other wants.
pub(crate) const DEADLOCKS: bool = false;
/// Whether a body makes tables as a part of its transaction; it is refused otherwise.
pub(crate) const DDL_IN_BODIES: bool = true;
/// Whether transactions run on connections beside the pool's, so that a body finds that free.
pub(crate) const BODY_HAS_THE_POOL: bool = false;
/// How many rows are pruned in the middle of a load.
pub(crate) const OLD: u64 = 20_000;

/// Begins a transaction that takes its locks at once.
pub(crate) const BEGIN: &str = "BEGIN IMMEDIATE";
/// Makes a session wait for a lock for less than a body's time.
pub(crate) const HASTY: &str = "PRAGMA busy_timeout = 100";
