//! What every store keeps: one suite, run unchanged on each database.
//!
//! A database joins by a [`Fixture`] and one line of [`suite!`]. No store overrides a test.

pub(crate) mod attempts;
pub(crate) mod bodies;
pub(crate) mod claims;
pub(crate) mod keys;
pub(crate) mod kinds;
pub(crate) mod letters;
pub(crate) mod process;
pub(crate) mod pruning;
pub(crate) mod redrive;
pub(crate) mod registry;
pub(crate) mod schema;
pub(crate) mod waiting;

use std::fmt::Debug;
use std::time::Duration;

use super::{Claim, ConsumerId, Inbox, InboxOptions, Limits, Store, Value, Verdict};
use crate::error::Error;
use crate::handler::Identity;
use crate::key::Key;

/// A database of its own for one test, with the inbox's tables and `effects (key TEXT, note TEXT)`.
pub(crate) trait Fixture: Sized + Send + Sync + 'static {
    /// The database.
    type Db: Store<Pool = sqlx::Pool<Self::Db>, Connection = <Self::Db as sqlx::Database>::Connection> + sqlx::Database;

    /// A fresh database without tables.
    fn bare() -> impl Future<Output = Self> + Send;

    /// The inbox, over a pool of its own.
    fn inbox(&self) -> &Inbox<Self::Db>;

    /// The database's URL.
    fn url(&self) -> String;

    /// What the suite is run with beyond the defaults.
    fn options() -> InboxOptions<Self::Db> {
        Inbox::options()
    }

    /// Another inbox on the same database, as another process would have it.
    fn another(&self) -> impl Future<Output = Inbox<Self::Db>> + Send {
        self.with_prefix("inbox")
    }

    /// An inbox on the same database whose tables have this prefix.
    fn with_prefix(&self, prefix: &str) -> impl Future<Output = Inbox<Self::Db>> + Send {
        async move { Self::options().prefix(prefix).connect(&self.url()).await.unwrap() }
    }
}

/// The same database with an inbox of lean rows.
pub(crate) struct Lean<F: Fixture> {
    inbox: Inbox<F::Db>,
    database: F,
}

impl<F: Fixture> Fixture for Lean<F> {
    type Db = F::Db;

    async fn bare() -> Self {
        let database = F::bare().await;
        let inbox = Self::options().with_pool(database.inbox().pool().clone()).unwrap();
        Self { inbox, database }
    }

    fn inbox(&self) -> &Inbox<F::Db> {
        &self.inbox
    }

    fn url(&self) -> String {
        self.database.url()
    }

    fn options() -> InboxOptions<F::Db> {
        F::options().lean()
    }
}

/// The URL of a server that the tests need.
#[cfg(any(feature = "mysql", feature = "postgres"))]
pub(crate) fn server(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} isn't set: run `scripts/services start` and `eval \"$(scripts/services env)\"`")
    })
}

pub(crate) const LIMITS: Limits = Limits { claim: Duration::from_secs(10), run: Duration::from_secs(30) };
pub(crate) const SHORT: Limits = Limits { claim: Duration::from_millis(150), run: Duration::from_secs(30) };
pub(crate) const CONSUMER: ConsumerId = ConsumerId(1);
pub(crate) const OTHER: ConsumerId = ConsumerId(2);

pub(crate) async fn ready<F: Fixture>() -> F {
    let fixture = F::bare().await;
    fixture.inbox().migrate().await.unwrap();
    execute(fixture.inbox(), "CREATE TABLE effects (effect_key TEXT NOT NULL, note TEXT NOT NULL)", vec![]).await;
    fixture
}

pub(crate) async fn execute<Db: Store>(inbox: &Inbox<Db>, sql: &str, arguments: Vec<Value>) {
    let mut connection = inbox.acquire().await.unwrap();
    Db::run(&mut connection, &inbox.sql(sql), arguments).await.unwrap();
}

pub(crate) async fn number<Db: Store>(inbox: &Inbox<Db>, sql: &str) -> i64 {
    inbox.read(sql, Vec::new()).await.unwrap()[0].int(0).unwrap()
}

pub(crate) async fn effects<Db: Store>(inbox: &Inbox<Db>) -> i64 {
    number(inbox, "SELECT COUNT(*) FROM effects").await
}

pub(crate) async fn rows<Db: Store>(inbox: &Inbox<Db>) -> i64 {
    number(inbox, "SELECT COUNT(*) FROM {inbox}").await
}

pub(crate) fn key(text: &str) -> Key {
    Key::parse(text).unwrap()
}

pub(crate) fn claim(text: &str) -> Claim {
    Claim { consumer: CONSUMER, identity: Identity::key(key(text)), payload: 7 }
}

pub(crate) fn claim_with_previous(text: &str, previous: &str) -> Claim {
    let identity = Identity::Key { key: key(text), previous: Some(key(previous)) };
    Claim { identity, ..claim(text) }
}

pub(crate) const FRESH: Verdict = Verdict::Fresh { prior: None };
pub(crate) const DUPLICATE: Verdict = Verdict::Duplicate { same_payload: true };

pub(crate) async fn begin<Db: Store>(inbox: &Inbox<Db>, claim: &Claim) -> (Db::Tx, Verdict) {
    let (tx, verdicts) = Db::begin(inbox, std::slice::from_ref(claim), LIMITS).await.unwrap();
    (tx, verdicts.into_iter().next().unwrap())
}

/// Writes one effect, as a body would.
pub(crate) async fn effect<Db: Store>(connection: &mut Db::Connection, claim: &Claim) -> Result<(), sqlx::Error> {
    let insert = "INSERT INTO effects (effect_key, note) VALUES (?, 'effect')";
    Db::run(connection, insert, vec![claim.identity.name().as_str().into()]).await.map(drop)
}

/// One delivery in the one order: claim, effect, commit; the claim's verdict comes back.
pub(crate) async fn deliver<Db: Store>(inbox: &Inbox<Db>, claim: &Claim) -> Result<Verdict, Error> {
    let (mut tx, verdicts) = Db::begin(inbox, std::slice::from_ref(claim), LIMITS).await?;
    let verdict = verdicts.into_iter().next().unwrap();
    match verdict {
        Verdict::Fresh { .. } => {
            effect::<Db>(&mut tx, claim).await?;
            Db::commit(tx).await.map_err(|error| Error::from(format!("{error:?}")))?;
        }
        _ => Db::rollback(tx).await,
    }
    Ok(verdict)
}

/// The verdict on a message that comes now, leaving nothing behind.
pub(crate) async fn verdict<Db: Store>(inbox: &Inbox<Db>, claim: &Claim) -> Verdict {
    let (tx, verdict) = begin(inbox, claim).await;
    Db::rollback(tx).await;
    verdict
}

/// Waits until something holds, for at most ten seconds.
pub(crate) async fn eventually<T: Debug, Fut: Future<Output = T>>(
    what: &str,
    mut look: impl FnMut() -> Fut,
    holds: impl Fn(&T) -> bool,
) {
    let mut last = None;
    for _ in 0..1_000 {
        let seen = look().await;
        if holds(&seen) {
            return;
        }
        last = Some(seen);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what}: not within ten seconds; last seen {last:?}");
}

/// Instantiates the suite for one database.
macro_rules! suite {
    ($fixture:ty) => { $crate::store::suite::suite! { @modules $fixture,
        attempts {
            failures_are_counted_for_each_key
            a_failure_takes_the_start_marks_back
            start_marks_count_until_an_end
            an_end_without_failures_leaves_no_row
            the_claim_tells_what_earlier_attempts_left_behind
            success_forgets_the_attempts_in_its_own_transaction
            a_rolled_back_success_forgets_nothing
            an_error_of_any_text_can_be_recorded
        }
        bodies {
            commit_keeps_claim_and_effect
            rollback_undoes_claim_and_effect
            begin_and_commit_in_a_body_is_a_savepoint
            begin_dropped_in_a_body_undoes_only_its_part
            begin_failing_in_a_body_undoes_only_its_part
            begin_within_begin_in_a_body
            a_begin_that_was_forgotten_is_refused
            a_swallowed_error_never_parts_claim_and_effect
            own_commit_never_parts_claim_and_effect
            own_rollback_never_parts_claim_and_effect
            own_rollback_and_begin_never_parts_claim_and_effect
            own_commit_and_begin_never_parts_claim_and_effect
            releasing_the_inboxs_savepoint_is_refused
            going_back_to_the_inboxs_savepoint_keeps_the_claim
            check_lets_a_transaction_go_on
            check_notices_a_body_that_ended_the_transaction
            a_refused_commit_leaves_the_next_message_a_true_transaction
        }
        claims {
            first_delivery_is_fresh
            redelivery_after_commit_is_a_duplicate
            a_duplicate_tells_its_payload_from_another
            a_row_of_unknown_payload_is_no_key_conflict
            rollback_frees_the_claim
            closing_frees_the_claim
            dropping_frees_the_claim
            aborting_the_holders_task_frees_the_claim
            two_consumers_may_have_one_key
            a_group_is_answered_in_its_own_order
            a_twin_points_at_its_first
            a_twin_of_a_duplicate_is_a_duplicate
            a_twin_with_another_payload_of_a_duplicate_is_told_apart
            a_group_of_sixty_four_is_claimed_at_once
            a_group_without_claims_begins
            both_keys_are_held_while_there_is_a_previous_one
            a_previous_key_that_was_committed_makes_a_duplicate
            a_refused_claim_leaves_no_row_of_its_other_key
            a_claim_refused_by_its_previous_key_does_not_refuse_the_next
            one_previous_key_makes_two_messages_twins
        }
        keys {
            k11_keys_are_compared_byte_for_byte
            m03_letter_case_and_accents_make_two_messages
            p06_a_nul_makes_another_message
            p07_long_keys_stay_apart
            odd_keys_in_one_group_are_no_twins
        }
        kinds {
            a_row_holds_the_text_or_sixteen_bytes
            tables_of_the_other_kind_are_refused
            both_kinds_live_side_by_side_under_two_prefixes
            attempts_and_letters_keep_the_text
        }
        letters {
            a_letter_gives_its_claim_up
            a_duplicate_is_not_buried
            a_second_letter_of_a_key_renews_the_first
            an_open_letter_keeps_a_row_of_attempts
            bytes_come_back_exactly
            headers_come_back_exactly
            letters_without_a_key_are_told_apart_by_their_bytes
            d01_two_handlers_bury_one_message_each
            a_conflict_is_a_letter_of_its_own
            a_success_closes_the_open_letter_of_its_key
            lists_are_filtered
            a_letter_that_is_not_there_is_named
            discarded_letters_are_not_taken
        }
        pruning {
            old_rows_go_and_young_ones_stay
            more_rows_than_a_batch_go
            keys_with_an_open_letter_stay
            other_consumers_are_left_alone
            one_process_prunes_at_a_time
            closed_letters_and_forgotten_attempts_go_too
            p09_claims_go_through_while_rows_are_pruned
            x09_the_databases_clock_decides
        }
        redrive {
            a_redriven_letter_is_taken_once
            a_lease_that_ran_out_is_taken_again
            a_postponed_letter_waits
            d02_a_redriven_message_has_a_fresh_budget_and_one_effect
            a_letter_that_was_done_is_a_duplicate_when_redriven
            a_letter_that_fails_again_is_open_again
            a_letter_that_got_a_key_meanwhile_closes_the_old_one
            a_letter_older_than_the_window_must_be_forced
            only_the_consumers_own_letters_are_taken
            eight_takers_share_the_letters
        }
        registry {
            a_consumer_keeps_its_number
            another_key_is_refused
            another_key_that_names_the_previous_one_is_taken
            foreign_sources_are_refused
            overlapping_sources_are_taken
            a_renamed_source_can_be_moved
            two_handlers_of_one_name_are_refused
            a_refused_start_leaves_nothing_behind
            eight_starts_at_once_agree
            messages_without_a_handler_have_a_namespace
        }
        schema {
            migrating_twice_changes_nothing
            eight_tasks_migrate_at_once
            eight_processes_migrate_at_once
            plain_files_are_what_is_migrated
            tables_made_by_hand_are_verified
            an_inbox_as_version_1_left_it_is_upgraded
            a_later_step_keeps_the_rows_and_runs_once
            tables_that_were_migrated_are_verified
            missing_tables_are_named
            tables_of_a_later_release_are_refused
            two_prefixes_are_two_inboxes
            prefixes_that_no_table_can_have_are_refused
            the_databases_clock_is_read
            a_dropped_call_leaves_no_open_transaction
        }
        waiting {
            p01_a_second_claim_waits_for_the_commit_and_is_a_duplicate
            p01_a_second_claim_waits_for_the_rollback_and_is_fresh
            p01_a_second_claim_is_fresh_after_the_holder_was_dropped
            p01_a_claim_that_waits_too_long_is_unavailable
            eight_copies_at_once_have_one_effect
            copies_in_two_processes_have_one_effect_each
            a_claim_of_another_key_goes_through_after_the_wait
        }
    } };
    (@modules $fixture:ty, $($module:ident { $($test:ident)* })*) => {
        $(mod $module {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                $crate::store::suite::$module::$test::<$fixture>().await;
            })*
        })*
    };
}
pub(crate) use suite;
