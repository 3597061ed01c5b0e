//! Controls: settings by which Postgres forgets commits that it has reported, and the load that finds it out.

use inboxed::store::Risk;

use super::killed::is_found_losing;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_with_unlogged_tables_is_found_losing() {
    let unlogged = ["ALTER TABLE inbox SET UNLOGGED", "ALTER TABLE effects SET UNLOGGED"];
    is_found_losing(&[Risk::Unlogged], &unlogged).await;
}
