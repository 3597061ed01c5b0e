//! What the publisher has promised: one line for each message, on the disk before the message is published.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

/// The sources, each with a handler of its own.
pub(crate) const SOURCES: [&str; 2] = ["soak-deposits", "soak-transfers"];

/// Messages meet on these rows, and spread over the others.
pub(crate) const HOT_ACCOUNTS: i64 = 4;
pub(crate) const ACCOUNTS: i64 = 1_000;
const HOT_SHARE: f64 = 0.05;

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) id: i64,
    pub(crate) account: i64,
    pub(crate) amount: i64,
}

impl Message {
    pub(crate) fn by_chance(id: i64, rng: &mut fastrand::Rng) -> Self {
        let hot = rng.f64() < HOT_SHARE;
        let account = if hot { rng.i64(0..HOT_ACCOUNTS) } else { rng.i64(HOT_ACCOUNTS..ACCOUNTS) };
        Self { id, account, amount: rng.i64(1..=1_000) }
    }

    /// The source that it is published to.
    pub(crate) fn source(&self) -> &'static str {
        SOURCES[usize::from(self.id % 2 == 0)]
    }

    pub(crate) fn body(&self) -> anyhow::Result<String> {
        Ok(serde_json::to_string(self)?)
    }
}

/// The ledger, for the one who writes it.
pub(crate) struct Ledger(File);

impl Ledger {
    pub(crate) fn create(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self(File::create_new(folder.join("ledger")).context("the ledger")?))
    }

    /// Promises messages. They may be published when this returns.
    pub(crate) fn promise(&mut self, messages: &[Message]) -> anyhow::Result<()> {
        let mut lines = Vec::new();
        for message in messages {
            serde_json::to_writer(&mut lines, message)?;
            lines.push(b'\n');
        }
        self.0.write_all(&lines)?;
        self.0.sync_data().context("the ledger")
    }
}

/// Everything that was promised.
pub(crate) fn read(folder: &Path) -> anyhow::Result<Vec<Message>> {
    let lines = BufReader::new(File::open(folder.join("ledger")).context("the ledger")?).lines();
    lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect()
}
