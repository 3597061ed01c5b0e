//! A child process: this program in another role.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::TASK;
use crate::arguments::Task;

pub(crate) struct Process {
    child: Child,
    said: Lines<BufReader<ChildStdout>>,
    told: ChildStdin,
}

impl Process {
    /// Starts it; what it has to complain about goes into the log of this name.
    pub(crate) fn start(task: &Task, folder: &Path, name: &str) -> anyhow::Result<Self> {
        let log = OpenOptions::new().create(true).append(true).open(folder.join(name).with_extension("log"))?;
        let mut child = Command::new(std::env::current_exe()?)
            .env(TASK, serde_json::to_string(task)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("a child process")?;
        let said = child.stdout.take().context("its output")?;
        let told = child.stdin.take().context("its input")?;
        Ok(Self { child, said: BufReader::new(said).lines(), told })
    }

    /// Writes a line to it. One that is gone doesn't hear it.
    pub(crate) async fn tell(&mut self, line: &str) {
        let _ = self.told.write_all(format!("{line}\n").as_bytes()).await;
    }

    /// Waits so long for a line that begins so.
    pub(crate) async fn hear(&mut self, beginning: &str, patience: Duration) -> Option<String> {
        let heard = async {
            while let Ok(Some(line)) = self.said.next_line().await {
                if line.starts_with(beginning) {
                    return Some(line);
                }
            }
            None
        };
        tokio::time::timeout(patience, heard).await.ok().flatten()
    }

    /// How it has ended, if it has.
    pub(crate) fn ended(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Ends it by SIGKILL.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Asks it to end by SIGTERM, and waits so long.
    pub(crate) async fn terminate(mut self, patience: Duration) -> anyhow::Result<Option<ExitStatus>> {
        if let Some(id) = self.child.id() {
            Command::new("kill").args(["-TERM", &id.to_string()]).status().await?;
        }
        match tokio::time::timeout(patience, self.child.wait()).await {
            Ok(ended) => Ok(Some(ended?)),
            Err(_) => self.kill().await.map(|()| None),
        }
    }
}
