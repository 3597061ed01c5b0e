//! Other processes: a test starts itself again, with the database of the first one in a variable.

use std::process::{Child, Command, Stdio};

const URL: &str = "INBOXED_TEST_URL";

/// In another process, the database of the first one.
pub(crate) fn database() -> Option<String> {
    std::env::var(URL).ok()
}

/// Starts the test that calls this again.
pub(crate) fn again(url: &str) -> Child {
    // libtest names each test's thread after the test.
    let test = std::thread::current().name().unwrap().to_owned();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test, "--nocapture"])
        .env(URL, url)
        // Its summary would be counted with ours.
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

pub(crate) fn all_succeed(children: Vec<Child>) {
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
}
