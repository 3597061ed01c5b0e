//! What is run: the command line, and what a child process is told of it.

use std::path::PathBuf;

use anyhow::{Context as _, bail, ensure};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub(crate) const USAGE: &str = "\
usage: scripts/soak [OPTION VALUE]…

  --broker nats|sqs|rabbitmq|memory
                                  the broker; `memory` lives in the one consumer process, and is fed again after each kill
  --db postgres|mysql|sqlite      the database
  --messages N                    how many different messages
  --kills K                       consumers killed: three in each of four windows, the rest there or at any moment
  --db-kills D                    the database killed by SIGKILL, and started again
  --cuts C                        all connections to the broker or the database cut
  --restarts R                    the broker stopped and started again, and every second time killed; the SQS emulator is
                                  only stopped, since it writes its queues down at an orderly end alone
  --duplicates SHARE              the share of messages that the producer publishes twice
  --seed S                        what is done, and when; by default another each time
  --control claim|ack-first|select-insert|pool|unchecked
                                  consumers that break one rule each: must end `doubled:` or `lost:`

The last line is `exact: …` and the exit status 0; or `doubled: …`, `lost: …` or `failed: …` and 1; or it couldn't be
set up, and 2.
";

/// Three kills in each of the four windows.
pub(crate) const FEWEST_KILLS: usize = 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum BrokerKind {
    Memory,
    Nats,
    Sqs,
    Rabbitmq,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Database {
    Postgres,
    Mysql,
    Sqlite,
}

/// A consumer written by hand, or a handler, that breaks one rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Control {
    /// No claim.
    Claim,
    /// Acknowledged before the commit.
    AckFirst,
    /// Looks whether the key is known, and inserts it afterwards.
    SelectInsert,
    /// The effect goes through a pool, not through the transaction.
    Pool,
    /// The body swallows an error that ended its transaction, and nobody looks at the commit.
    Unchecked,
}

/// What is to be done to the system.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) broker: BrokerKind,
    pub(crate) database: Database,
    pub(crate) messages: u64,
    pub(crate) kills: usize,
    pub(crate) database_kills: usize,
    pub(crate) cuts: usize,
    pub(crate) restarts: usize,
    pub(crate) duplicates: f64,
    pub(crate) seed: u64,
    pub(crate) control: Option<Control>,
    /// Everything that the run writes.
    pub(crate) folder: PathBuf,
}

/// What a child process has to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) folder: PathBuf,
    pub(crate) broker: BrokerKind,
    pub(crate) broker_url: String,
    pub(crate) database: Database,
    pub(crate) database_url: String,
    pub(crate) messages: u64,
    pub(crate) duplicates: f64,
    pub(crate) seed: u64,
    pub(crate) control: Option<Control>,
}

/// A child process's role.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    Publish(Run),
    Consume(Run),
}

pub(crate) fn parse(arguments: Vec<String>) -> anyhow::Result<Plan> {
    let folder = std::env::var_os("INBOXED_SOAK").context("INBOXED_SOAK isn't set: start the soak by scripts/soak")?;
    let mut plan = Plan {
        broker: BrokerKind::Memory,
        database: Database::Sqlite,
        messages: 2_000,
        kills: FEWEST_KILLS,
        database_kills: 0,
        cuts: 0,
        restarts: 0,
        duplicates: 0.05,
        seed: fastrand::u64(..1_000_000),
        control: None,
        folder: folder.into(),
    };
    let mut arguments = arguments.into_iter();
    while let Some(name) = arguments.next() {
        let value = arguments.next().with_context(|| format!("{name} needs a value\n\n{USAGE}"))?;
        match &*name {
            "--broker" => plan.broker = word(&name, value)?,
            "--db" => plan.database = word(&name, value)?,
            "--messages" => plan.messages = number(&name, &value)?,
            "--kills" => plan.kills = number(&name, &value)?,
            "--db-kills" => plan.database_kills = number(&name, &value)?,
            "--cuts" => plan.cuts = number(&name, &value)?,
            "--restarts" => plan.restarts = number(&name, &value)?,
            "--duplicates" => plan.duplicates = number(&name, &value)?,
            "--seed" => plan.seed = number(&name, &value)?,
            "--control" => plan.control = Some(word(&name, value)?),
            _ => bail!("there is no {name}\n\n{USAGE}"),
        }
    }
    plan.check()?;
    Ok(plan)
}

impl Plan {
    fn check(&self) -> anyhow::Result<()> {
        let events = self.kills + self.database_kills + self.cuts + self.restarts;
        ensure!(self.kills >= FEWEST_KILLS, "--kills must be {FEWEST_KILLS} at least: three in each of four windows");
        ensure!(
            self.messages >= 40 * (events as u64 + 1),
            "--messages must be 40 at least for each thing that is done"
        );
        ensure!((0.0..=1.0).contains(&self.duplicates), "--duplicates is a share, from 0 to 1");
        if self.broker == BrokerKind::Memory {
            ensure!(
                self.restarts == 0,
                "`memory` ends with its consumer process: each kill is its restart; --restarts 0"
            );
        }
        if self.database == Database::Sqlite {
            ensure!(self.database_kills == 0, "SQLite has no server to be killed: --db-kills 0");
            ensure!(
                self.control != Some(Control::Pool),
                "SQLite has one writer: through a pool the effect would wait for its own claim's transaction"
            );
            ensure!(self.broker != BrokerKind::Memory || self.cuts == 0, "no connection here could be cut: --cuts 0");
        }
        Ok(())
    }
}

fn word<T: DeserializeOwned>(name: &str, value: String) -> anyhow::Result<T> {
    serde_json::from_value(serde_json::Value::String(value)).with_context(|| name.to_owned())
}

fn number<T: std::str::FromStr<Err: std::error::Error + Send + Sync + 'static>>(
    name: &str,
    value: &str,
) -> anyhow::Result<T> {
    value.parse().with_context(|| format!("{name} {value}"))
}
