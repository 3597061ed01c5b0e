//! The servers: the shared ones that the environment names, and a test's own that it may kill.

use std::process::Command;

use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard};

/// The URL of a shared server.
pub(crate) fn shared(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} isn't set: run `scripts/services start` and `eval \"$(scripts/services env)\"`")
    })
}

/// A server of the test's own, with its data; both are gone at the end.
pub(crate) struct Own {
    service: &'static str,
    folder: TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// One such server at a time: its start takes all of a small machine.
static TURN: Mutex<()> = Mutex::const_new(());

impl Own {
    /// Starts a server that `scripts/services` knows by this name.
    pub(crate) async fn start(service: &'static str) -> Self {
        let own = Self { service, folder: tempfile::tempdir().unwrap(), _turn: TURN.lock().await };
        own.tell("start").await;
        own
    }

    /// Its URL, the same after each start.
    pub(crate) async fn url(&self) -> String {
        let printed = self.tell("env").await;
        let (_, url) = printed.trim().split_once('=').unwrap();
        url.to_owned()
    }

    /// Ends it by SIGKILL.
    #[allow(dead_code, reason = "only some tests kill a server")]
    pub(crate) async fn kill(&self) {
        self.tell("kill").await;
    }

    /// Ends it in an orderly way.
    #[allow(dead_code, reason = "only some tests stop a server so")]
    pub(crate) async fn stop(&self) {
        self.tell("stop").await;
    }

    /// Starts it again on its data.
    pub(crate) async fn start_again(&self) {
        self.tell("start").await;
    }

    async fn tell(&self, command: &str) -> String {
        let mut script = self.script(command);
        let output = tokio::task::spawn_blocking(move || script.output()).await.unwrap().unwrap();
        let said = [output.stdout.as_slice(), &output.stderr].concat();
        assert!(output.status.success(), "scripts/services {command}: {}", String::from_utf8_lossy(&said));
        String::from_utf8(output.stdout).unwrap()
    }

    fn script(&self, command: &str) -> Command {
        let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/services"));
        script.args([command, self.service]).env("INBOXED_SERVICES", self.folder.path());
        // Another server's URL in the environment would win.
        for (variable, _) in std::env::vars().filter(|(variable, _)| variable.ends_with("_URL")) {
            script.env_remove(variable);
        }
        script
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        let _ = self.script("clean").output();
    }
}
