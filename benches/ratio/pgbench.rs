//! `pgbench` with the statements of the loop by hand.

use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context as _, ensure};
use tokio::process::Command;

use crate::contest::ACCOUNTS;
use crate::order::RANGE;
use crate::rounds::ROUND;

/// Debian keeps it off the path, in a folder for each version.
fn program() -> PathBuf {
    let mut versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|version| Some(version.ok()?.path().join("bin/pgbench")))
        .filter(|program| program.exists())
        .collect::<Vec<_>>();
    versions.sort();
    versions.pop().unwrap_or_else(|| "pgbench".into())
}

/// Transactions a second. `round` keeps the keys fresh.
pub(crate) async fn run(url: &str, workers: u32, round: u32) -> anyhow::Result<f64> {
    let first = i64::from(round + 1) * 1_000 * RANGE;
    let script = format!(
        "\\set order {first} + :client_id * {RANGE} + :n\n\\set n :n + 1\n\\set account random(1, {ACCOUNTS})\n\
         BEGIN;\n\
         INSERT INTO processed_messages (message_key) VALUES ('order:' || :order || ':' || 'placed') \
         ON CONFLICT (message_key) DO NOTHING;\n\
         UPDATE account SET balance = balance + 1 WHERE id = :account;\n\
         COMMIT;\n"
    );
    let file = tempfile::NamedTempFile::new()?;
    tokio::fs::write(file.path(), script).await?;
    let workers = workers.to_string();
    let seconds = ROUND.as_secs().to_string();
    let output = Command::new(program())
        .args(["-n", "-M", "prepared", "-D", "n=0", "-c", &workers, "-j", &workers, "-T", &seconds, "-f"])
        .arg(file.path())
        .arg(url)
        .stdin(Stdio::null())
        .output()
        .await
        .context("pgbench can't be started: it comes with Debian's package postgresql")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let rate = said.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse::<f64>().ok());
    ensure!(output.status.success() && rate.is_some(), "pgbench: {said}{}", String::from_utf8_lossy(&output.stderr));
    rate.context("pgbench answered no rate")
}
