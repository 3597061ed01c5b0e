//! One suite for every adapter, on an inbox in a real `SQLite` file. Each row has a source of its own and a bounded time, and
//! prints `name delivered/distinct/effects`; effects are counted by the suite's own SQL on a table without a unique index.
//!
//! A capability that an adapter declares is tested; one that it doesn't is tested to be refused. What no row here holds an
//! in-process broker to, and why:
//!
//! | row | decides | where it belongs |
//! |---|---|---|
//! | `reconnect` | `persistent` | here; refused by `memory`, which ends with its process |
//! | `source_recreated`, `stale_channel`, `channel_only_closed` | `persistent` | with the adapter that has a server and channels to cut |
//! | `stalled` | a cap on messages in flight, which `memory` lacks | with the adapter that has one |
//! | `topology` (conflicting) | settings that a server keeps of a source | with the adapter that has them |
//! | `database_killed` | a database in a process of its own | with the store that has one; `SQLite` ends with its process |
//! | `crash_points`, `suspect` | feature `testing` | here, by ending the message's task; a killed process takes `memory` with it |

mod adapter;
mod handlers;
mod memory;
#[cfg(feature = "nats")]
mod nats;
mod rows;
#[cfg(feature = "nats")]
#[path = "../servers/services.rs"]
mod services;
mod trial;
mod watch;

use std::time::Duration;

/// How long any row may take: the longest makes ten thousand durable commits.
const PATIENCE: Duration = Duration::from_mins(5);

/// Makes each row a test of one adapter.
macro_rules! conformance {
    ($adapter:ty: $($(#[$attribute:meta])* $group:ident::$row:ident,)+) => {$(
        $(#[$attribute])*
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $row() {
            let row = rows::$group::$row::<$adapter>();
            assert!(tokio::time::timeout(PATIENCE, row).await.is_ok(), "the row took longer than {PATIENCE:?}");
        }
    )+};
}

/// Every row, for the adapter of this type.
macro_rules! every_row {
    ($adapter:ty) => {
        conformance! { $adapter:
            capabilities::declares_what_it_is_held_to,
            capabilities::position,
            capabilities::batch_answers,
            capabilities::topology,
            basic::publish_subscribe,
            basic::concurrent,
            basic::many_topics,
            basic::publisher_close,
            basic::retry_comes_back,
            restarts::resubscribe,
            restarts::concurrent_close,
            restarts::others_fail,
            restarts::cancel,
            restarts::reconnect,
            order::unacked_blocks,
            order::order_by_key,
            groups::groups,
            groups::late_subscriber,
            leases::lease_outlived,
            leases::lease_outlived_without_keeper,
            leases::waiting_lease,
            leases::waiting_lease_without_keeper,
            leases::late_settle,
            leases::contention,
            refusals::undecodable,
            refusals::unknown_type_given_back,
            refusals::unknown_type_dead_lettered,
            refusals::unknown_type_skipped,
            refusals::too_old,
            refusals::clock_skew,
            refusals::retention_below_the_horizon,
            failures::retry_delay,
            failures::dead_letter_refused,
            failures::partial_batch,
            failures::duplicate_in_batch,
            failures::panic,
            failures::redrive,
            shutdown::drain,
            shutdown::given_back,
            outages::store_down,
            #[cfg(feature = "testing")]
            crashes::crash_points,
            #[cfg(feature = "testing")]
            crashes::suspect,
        }
    };
}

mod on_memory {
    use super::{PATIENCE, memory::InProcess, rows};

    every_row!(InProcess);
}

#[cfg(feature = "nats")]
mod on_nats {
    use super::{PATIENCE, nats::JetStream, rows};

    every_row!(JetStream<false>);

    /// With a durable that hands out one message at a time.
    mod one_at_a_time {
        use super::{JetStream, PATIENCE, rows};

        conformance! { JetStream<true>:
            capabilities::declares_what_it_is_held_to,
            order::unacked_blocks,
            order::order_by_key,
        }
    }
}
