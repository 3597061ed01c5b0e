//! Child processes: the running test again, up to the role that it has there. A child may be killed or kill itself.

use std::process::{Output, Stdio};

use tokio::process::{Child, Command};

use super::within;

const ROLE: &str = "INBOXED_TEST_ROLE";
const DATABASE: &str = "INBOXED_TEST_DATABASE";

/// In a child, its role and the parent's database.
pub(crate) fn role() -> Option<(String, String)> {
    Some((std::env::var(ROLE).ok()?, std::env::var(DATABASE).ok()?))
}

/// Starts the test that calls this again, as a child in this role on the database.
pub(crate) fn start(role: &str, database: &str) -> Child {
    // libtest names each test's thread after the test.
    let test = std::thread::current().name().expect("called from the test itself").to_owned();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test, "--nocapture"])
        .env(ROLE, role)
        .env(DATABASE, database)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// Waits for a child's end.
pub(crate) async fn end(child: Child) -> Output {
    within(child.wait_with_output()).await.unwrap()
}

/// Waits for the end of a child that must not fail, and answers what it printed.
#[allow(dead_code, reason = "not every test asks what was printed")]
pub(crate) async fn succeed(child: Child) -> String {
    let output = end(child).await;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}\n{printed}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    printed
}

/// Whether a signal ended the process, as `abort` and SIGKILL do.
pub(crate) fn killed(output: &Output) -> bool {
    output.status.code().is_none()
}
