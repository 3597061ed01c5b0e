//! A control: the setting by which MariaDB forgets commits that it has reported, and the load that finds it out.

use inboxed::store::Risk;

use super::killed::is_found_losing;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_server_that_flushes_later_is_found_losing() {
    is_found_losing(&[Risk::FlushLogNotAtCommit], &["SET GLOBAL innodb_flush_log_at_trx_commit = 0"]).await;
}
