//! Faults that people who do this job reported in public, each as a test named by its id: bytes in, effects counted.
//!
//! All run through the whole order on the `memory` broker. Those in `faults` are compiled for each database and run on
//! `SQLite`, Postgres and MariaDB alike (`postgres::store::p06_…`); what differs there stands in the database's own module.
//! Where a fault belongs to another broker, the test shows what of it any of them can show.
//!
//! | id | the fault | where | if not the same on every database, or not here |
//! |---|---|---|---|
//! | D01 | two handlers of one event both fail | `replay` | |
//! | D02 | a replay carries its old delivery count, or is suppressed | `replay` | |
//! | K01 | a field of the key is absent | `key` | an `Option` in a key doesn't compile |
//! | K02 | the id is empty or blank | `key` | |
//! | K03 | one id for several handlers, types, tenants, services | `store` | |
//! | K04 | parts joined so that two pairs look alike | `key` | |
//! | K05 | a time stamp in the key | `key` | calls that make a new value don't compile |
//! | K06 | the producer retries under a fresh message id | `key` | |
//! | K07 | equal content taken for identity | `key` | |
//! | K08 | field order and spacing | `key` | |
//! | K09 | large integers through floating point | `key` | |
//! | K11 | composed and decomposed Unicode | `store` | |
//! | L01 | a transaction that reads and then writes, in two processes | `sqlite::writer` | the one write lock is `SQLite`'s |
//! | M02 | new and repeated keys at many workers | `claims` | gap locks are MariaDB's |
//! | M03 | a collation merges keys | `store` | MariaDB's database folds case and accents |
//! | M05 | four-byte characters | `store`, `mariadb::charset` | sessions that cut them off are MariaDB's |
//! | M07 | a lock wait undoes one statement only | `lock_waits`, `sqlite::busy` | met by no body on MariaDB, the transaction's end on Postgres, the claim's affair on `SQLite` |
//! | M08 | DDL commits silently | `ddl` | refused on MariaDB, part of the transaction elsewhere |
//! | N05 | the broker's limit strands a message | `limit` | no broker's limit decides, ours does |
//! | P01 | a second claim while the first isn't decided | `claims` | only on `SQLite` do other keys wait too |
//! | P04 | rows locked in opposite orders | `deadlocks`, `sqlite::busy` | `SQLite` meets no deadlock, but BUSY of another file |
//! | P05 | a pooler in transaction mode | `postgres::pooler` | PgBouncer is Postgres's |
//! | P06 | NUL in a key or a payload | `store` | |
//! | P07 | keys of any length | `store` | |
//! | P09 | retention against replay, and pruning | `window` | |
//! | P10 | a transaction held over slow calls, a pool that is empty | `held` | on the servers transactions run beside the pool |
//! | R03 | the redelivered flag taken for a proof | `retry` | |
//! | R04 | the broker's count against our limit, a consumer killed each time | `limit` | the queue's settings are RabbitMQ's |
//! | R06 | missing and odd headers | `envelope` | |
//! | R07 | undecodable bytes | `retry` | |
//! | R08 | the dead letter can't be written | `retry` | |
//! | S05 | a duplicate isn't acknowledged | `retry` | |
//! | S07 | one bad message of a batch | `retry` | the reply that lists failed entries is SQS's |
//! | S09 | envelopes, declared and not | `envelope` | |
//! | S12 | a redrive repeats finished work | `replay` | |
//! | X01 | a panic in a body | `body` | with `panic = "abort"` it is R04's killed process |
//! | X03 | an early return skips the end | `body` | |
//! | X05 | SIGTERM in the middle of work | `shutdown` | |
//! | X07 | a crash between mark and effect | `body` | |
//! | X08 | the effect is written past the transaction | `body` | |
//! | X09 | clocks of workers and producers | `window` | all here share one machine's clock |
//! | X10 | a failure is swallowed, or halts the consumer | `retry` | |

#![cfg(all(feature = "macros", feature = "sqlite", feature = "memory"))]
#![allow(missing_docs, reason = "handlers of tests")]
#![allow(clippy::duplicate_mod, reason = "the faults are compiled for each database's connection type")]

#[path = "../common/mod.rs"]
mod common;

#[cfg(feature = "mysql")]
mod mariadb;
#[cfg(feature = "postgres")]
mod postgres;
mod sqlite;
