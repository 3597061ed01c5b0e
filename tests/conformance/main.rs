//! One suite for every adapter, on an inbox in a real `SQLite` file. Each row has a source of its own and a bounded time, and
//! prints `test delivered/distinct/effects`; effects are counted by the suite's own SQL on a table without a unique index.
//! `scripts/conformance BROKER` prints all of it as a table.
//!
//! A capability that an adapter declares is tested; one that it doesn't is tested to be refused. What doesn't run for every
//! adapter, and why:
//!
//! | row | decides | where it is |
//! |---|---|---|
//! | `reconnect` | `persistent` | refused by `memory`, which ends with its process |
//! | `unacked_blocks`, `order_by_key` | `ordered` | for NATS with a durable that hands out one message at a time |
//! | `too_old`, `clock_skew` | whether a publisher dates its messages | refused by NATS, whose server does |
//! | `topology_missing` | whether a source's first consumer makes it | refused by a broker that makes nothing unasked |
//! | `source_recreated`, `stale_channel`, `stalled`, `topology_conflicting`, `settings_…` | a server that keeps settings, and connections to cut | `own` of each |
//! | `channel_only_closed` | channels that are closed alone | `on_rabbitmq::own`; NATS has none: its connection is the channel |
//! | `lease_outlived`, `waiting_lease` | leases that are extended | refused by RabbitMQ, where a body is ended by its deadline |
//! | `crash_points`, `suspect` | feature `testing` | by ending the message's task; `x07` kills the process, which would take `memory` with it |
//! | `database_killed` | a database in a process of its own | `tests/servers`; `SQLite` ends with its process |

mod adapter;
#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "sqs"))]
#[path = "../common/child.rs"]
mod child;
mod handlers;
mod memory;
#[cfg(feature = "nats")]
mod nats;
#[cfg(any(feature = "nats", feature = "rabbitmq"))]
mod proxy;
#[cfg(feature = "rabbitmq")]
mod rabbitmq;
mod rows;
#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "sqs"))]
#[path = "../common/services.rs"]
mod services;
#[cfg(feature = "sqs")]
mod sqs;
mod trial;
mod watch;

use std::time::Duration;

/// How long any row may take: the longest makes ten thousand durable commits.
const PATIENCE: Duration = Duration::from_mins(10);

/// Waits for something that must come.
#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "sqs"))]
async fn within<F: Future>(awaited: F) -> F::Output {
    tokio::time::timeout(PATIENCE, awaited).await.expect("in time")
}

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

/// Makes each of these functions a test.
#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "sqs"))]
macro_rules! own_rows {
    ($broker:ident: $($(#[$attribute:meta])* $group:ident::$row:ident,)+) => {$(
        $(#[$attribute])*
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $row() {
            crate::within(crate::$broker::$group::$row()).await;
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
            capabilities::topology_missing,
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

/// The rows whose consumers are processes of their own, which need a server beside them.
#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "sqs"))]
macro_rules! process_rows {
    ($adapter:ty) => {
        conformance! { $adapter:
            processes::x05_sigterm_drains,
            #[cfg(feature = "testing")]
            processes::x07_killed_process_has_one_effect,
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
    process_rows!(JetStream<false>);

    /// What only this broker can show. Names with an id are the public cases of that id.
    mod own {
        own_rows! { nats:
            cuts::stale_channel,
            cuts::n08_cut_connections_lose_and_double_nothing,
            cuts::n08_silent_connection_is_replaced,
            cuts::n02_lost_acknowledgement_has_one_effect,
            cuts::n02_server_killed_after_acknowledgements,
            cuts::n02_worker_that_lost_its_turn_says_nothing,
            made_anew::source_recreated,
            made_anew::n08_own_stream_is_made_again,
            made_anew::n08_foreign_stream_that_is_gone_ends_the_consumer,
            made_anew::n08_memory_stream_lost_in_a_restart_ends_the_consumer,
            made_anew::acknowledgement_of_a_stream_that_is_gone_takes_no_message_of_the_next,
            limits::n01_backoff_that_overrides_the_wait_is_the_lease,
            limits::n01_messages_that_wait_here_come_once,
            limits::n05_message_that_always_fails_ends_as_a_dead_letter_by_our_limit,
            limits::n05_limit_of_a_foreign_durable_can_be_accepted,
            limits::stalled,
            settings::topology_conflicting,
            settings::topology_made_otherwise,
            settings::topology_of_existing_only,
            settings::settings_are_found_and_accepted_by_name,
            settings::settings_changed_while_it_runs_end_the_consumer,
            settings::n06_cap_at_the_concurrency_is_refused,
            settings::n01_wait_in_the_wrong_unit_is_refused,
            settings::what_is_missing_is_named,
            settings::two_subjects_of_one_stream_are_two_sources,
            login::user_with_password_is_let_in_and_others_are_not,
            login::token_is_let_in,
            login::key_is_let_in,
            login::certificate_is_checked,
            unreadable::what_the_client_cannot_read_is_handled_all_the_same,
            publishing::repetition_is_known_by_its_id,
            publishing::id_of_a_message_that_is_sent_on_is_its_own,
            publishing::publisher_outlives_its_connection,
        }
    }

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

#[cfg(feature = "rabbitmq")]
mod on_rabbitmq {
    use super::{PATIENCE, rabbitmq::Quorum, rows};

    every_row!(Quorum<false>);
    process_rows!(Quorum<false>);

    /// What only this broker can show. Names with an id are the public cases of that id.
    mod own {
        own_rows! { rabbitmq:
            cuts::stale_channel,
            cuts::n08_cut_connections_lose_and_double_nothing,
            cuts::n08_silent_connection_is_replaced,
            cuts::lost_acknowledgement_has_one_effect,
            cuts::channel_only_closed,
            cuts::r01_late_acknowledgement_costs_a_channel_and_no_effect,
            cuts::body_of_three_leases_is_ended_by_its_deadline,
            ends::runtime_may_end_while_a_source_is_open,
            ends::credentials_and_virtual_host_are_refused_by_name,
            #[cfg(feature = "rabbitmq-tls")]
            ends::certificate_is_checked,
            messages::r03_redelivered_flag_decides_nothing,
            messages::r06_odd_properties_and_headers_break_nothing,
            messages::r07_undecodable_bodies_are_dead_letters_at_once,
            messages::r08_original_stays_until_its_dead_letter_is_written,
            messages::retry_keeps_the_message_as_it_was,
            messages::delayed_retry_survives_a_killed_server,
            messages::retry_that_cannot_be_delayed_waits_here,
            queues::n08_queue_that_is_gone_ends_the_consumer,
            queues::source_recreated,
            queues::topology_conflicting,
            queues::queue_of_the_sources_name_is_read,
            queues::source_of_some_topics,
            queues::handover_keeps_the_order,
            queues::retry_that_waits_here_keeps_no_shutdown_waiting,
            queues::retry_waits_no_longer_than_its_lease,
            queues::publisher_outlives_its_channels,
            queues::unroutable_message_is_an_error,
            queues::r04_servers_limit_is_refused_and_buries_no_failing_message,
            queues::r04_message_outlives_consumers_that_die_with_it,
        }
    }

    /// With one message at a time, and a queue of one active consumer.
    mod one_at_a_time {
        use super::{PATIENCE, Quorum, rows};

        conformance! { Quorum<true>:
            capabilities::declares_what_it_is_held_to,
            order::unacked_blocks,
            order::order_by_key,
        }
    }
}

#[cfg(feature = "sqs")]
mod on_sqs {
    use super::{PATIENCE, rows, sqs::Queues};

    every_row!(Queues<false>);
    process_rows!(Queues<false>);

    /// What only this broker can show. Names with an id are the public cases of that id.
    mod own {
        own_rows! { sqs:
            settlements::s01_body_that_outlives_its_lease_runs_once,
            settlements::s01_messages_that_wait_here_keep_their_lease,
            settlements::s03_failed_entries_of_a_batch_come_again_and_have_one_effect,
            settlements::s05_duplicate_is_deleted_until_that_works,
            settlements::s07_one_that_fails_comes_again_alone,
            settlements::s12_what_the_dead_letter_queue_gives_back_has_one_effect,
            settlements::extension_that_comes_too_late_is_a_lost_lease,
            settlements::many_settlements_go_ten_to_a_request,
            envelopes::s09_declared_envelope_has_the_key_inside,
            envelopes::s09_undeclared_envelope_is_a_dead_letter,
            outages::cut_connections_lose_and_double_nothing,
            outages::silent_poll_is_given_up,
            outages::throttled_key_does_not_end_the_consumer,
            outages::source_recreated,
            settings::topology_conflicting,
            settings::risks_are_found_when_a_queue_is_opened,
        }
    }
}

#[cfg(feature = "sqs")]
mod on_sqs_fifo {
    use super::{PATIENCE, rows, sqs::Queues};

    every_row!(Queues<true>);

    /// What only a queue that keeps an order can show.
    mod own {
        own_rows! { sqs:
            groups::messages_of_a_group_run_one_after_the_other,
            groups::message_that_fails_holds_back_its_group_alone,
            groups::messages_behind_a_long_one_come_once,
            groups::group_is_given_back_whole_when_a_consumer_ends,
            groups::repetition_is_known_by_its_id,
            settlements::expired_handle_of_a_fifo_queue_is_a_lost_acknowledgement,
        }
    }
}
