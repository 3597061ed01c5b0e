//! Settings by which Postgres forgets commits that it has reported: overruled by the inbox where they can be, and
//! otherwise found out by the load.

use inboxed::store::Risk;

use super::SERVICE;
use super::killed::{Verdict, is_found_losing, load_after};
use crate::common::services::Own;

/// Commits are reported before they are written, and written late.
const SYNCHRONOUS_COMMIT_OFF: [&str; 3] = [
    "ALTER SYSTEM SET synchronous_commit = off",
    "ALTER SYSTEM SET wal_writer_delay = '10s'",
    "SELECT pg_reload_conf()",
];

/// A trigger of the effect's own table, whose turn comes after that of the inbox's.
const PAST_THE_INBOX: [&str; 2] = [
    "CREATE FUNCTION forget() RETURNS trigger LANGUAGE plpgsql AS \
     $$ BEGIN PERFORM set_config('synchronous_commit', 'off', true); RETURN NULL; END $$",
    "CREATE CONSTRAINT TRIGGER forget AFTER INSERT ON effects DEFERRABLE INITIALLY DEFERRED \
     FOR EACH ROW EXECUTE FUNCTION forget()",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_with_synchronous_commit_off_has_every_effect_once() {
    let server = Own::start(SERVICE).await;
    let verdict = load_after(&server, &[], &SYNCHRONOUS_COMMIT_OFF).await;
    assert_eq!(verdict, Verdict { lost: 0, doubled: 0 });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_with_synchronous_commit_off_past_the_inbox_is_found_losing() {
    let past_the_inbox = [&SYNCHRONOUS_COMMIT_OFF[..], &PAST_THE_INBOX].concat();
    is_found_losing(&[], &past_the_inbox).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_with_unlogged_tables_is_found_losing() {
    let unlogged = ["ALTER TABLE inbox SET UNLOGGED", "ALTER TABLE effects SET UNLOGGED"];
    is_found_losing(&[Risk::Unlogged], &unlogged).await;
}
