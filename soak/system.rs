//! The servers of a run, which are its own, and the ways to them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use tokio::process::Command;

use crate::arguments::{BrokerKind, Database, Plan, Run};
use crate::proxy::Proxy;
use crate::verdict::Books;
use crate::{client, mysql, postgres, sqlite};

pub(crate) struct System {
    database: Database,
    /// The database itself, past the proxy.
    database_url: String,
    /// The broker itself, past the proxy.
    broker_url: String,
    folder: PathBuf,
    /// What can be cut.
    proxies: Vec<Proxy>,
    /// What a child process is told.
    pub(crate) run: Run,
}

impl System {
    /// Starts the servers and makes the tables.
    pub(crate) async fn start(plan: &Plan) -> anyhow::Result<Self> {
        let folder = plan.folder.clone();
        let mut proxies = Vec::new();
        let database_url = match server_of(plan.database) {
            Some(server) => start_server(&folder, server).await?,
            None => format!("sqlite://{}", folder.join("accounts.sqlite").display()),
        };
        let consumers_database = match server_of(plan.database) {
            Some(_) => by_proxy(&mut proxies, &database_url).await?,
            None => database_url.clone(),
        };
        let (broker_url, consumers_broker) = match client::server_of(plan.broker) {
            Some(server) => {
                let url = start_server(&folder, server).await?;
                client::prepare(plan.broker, &url).await.context("the sources")?;
                let by_proxy = by_proxy(&mut proxies, &url).await?;
                (url, by_proxy)
            }
            None => (String::new(), String::new()),
        };
        let run = Run {
            folder: folder.clone(),
            broker: plan.broker,
            broker_url: consumers_broker,
            database: plan.database,
            database_url: consumers_database,
            messages: plan.messages,
            duplicates: plan.duplicates,
            seed: plan.seed,
            control: plan.control,
        };
        let system = Self { database: plan.database, database_url, broker_url, folder, proxies, run };
        match system.database {
            Database::Postgres => postgres::prepare(&system.database_url).await,
            Database::Mysql => mysql::prepare(&system.database_url).await,
            Database::Sqlite => sqlite::prepare(&system.database_url).await,
        }
        .context("the tables")?;
        Ok(system)
    }

    /// What stands in the database.
    pub(crate) async fn books(&self) -> anyhow::Result<Books> {
        match self.database {
            Database::Postgres => postgres::books(&self.database_url).await,
            Database::Mysql => mysql::books(&self.database_url).await,
            Database::Sqlite => sqlite::books(&self.database_url).await,
        }
        .context("the database's books")
    }

    pub(crate) async fn kill_database(&self) -> anyhow::Result<()> {
        services(&self.folder, "kill", server_of(self.database)).await.map(drop)
    }

    /// Starts the database again. MariaDB was once seen to abort in its own recovery, and that isn't what is tested here.
    pub(crate) async fn start_database(&self) -> anyhow::Result<()> {
        let server = server_of(self.database);
        if let Err(error) = services(&self.folder, "start", server).await {
            eprintln!("the database doesn't start, and is started once more: {error:#}");
            services(&self.folder, "start", server).await?;
        }
        Ok(())
    }

    /// Ends the broker, in order or by SIGKILL, by turns. The SQS emulator loses its queues by a kill, which the service doesn't
    /// do: it is stopped, which is an outage of its endpoint.
    pub(crate) async fn stop_broker(&self, turn: usize) -> anyhow::Result<()> {
        let in_order = turn.is_multiple_of(2) || self.run.broker == BrokerKind::Sqs;
        self.tell_broker(if in_order { "stop" } else { "kill" }).await
    }

    pub(crate) async fn start_broker(&self) -> anyhow::Result<()> {
        self.tell_broker("start").await
    }

    async fn tell_broker(&self, command: &str) -> anyhow::Result<()> {
        services(&self.folder, command, client::server_of(self.run.broker)).await.map(drop)
    }

    /// How many messages aren't delivered, and how many aren't acknowledged, by the broker's own word.
    pub(crate) async fn unsettled(&self) -> anyhow::Result<(u64, u64)> {
        client::unsettled(self.run.broker, &self.broker_url).await
    }

    /// Cuts all connections to one of the servers, by turns, and says how many they were.
    pub(crate) fn cut(&self, turn: usize) -> usize {
        self.proxies.get(turn % self.proxies.len().max(1)).map_or(0, Proxy::cut)
    }
}

/// The database's name for `scripts/services`, if it is a server.
fn server_of(database: Database) -> Option<&'static str> {
    match database {
        Database::Postgres => Some("postgres"),
        Database::Mysql => Some("mariadb"),
        Database::Sqlite => None,
    }
}

/// The URL of a new proxy before this one.
async fn by_proxy(proxies: &mut Vec<Proxy>, url: &str) -> anyhow::Result<String> {
    let proxy = Proxy::before(url).await?;
    let url = proxy.url.clone();
    proxies.push(proxy);
    Ok(url)
}

/// Starts a server, and answers its URL.
async fn start_server(folder: &Path, server: &str) -> anyhow::Result<String> {
    services(folder, "start", Some(server)).await?;
    let printed = services(folder, "env", Some(server)).await?;
    let (_, url) = printed.trim().split_once('=').with_context(|| format!("no URL in `{printed}`"))?;
    // As a shell has to read it.
    Ok(url.replace('\\', ""))
}

/// Runs `scripts/services` on the servers of this run; the script that starts the soak has emptied the environment of others.
async fn services(folder: &Path, command: &str, server: Option<&str>) -> anyhow::Result<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/services");
    let mut services = Command::new(script);
    services.arg(command).args(server).env("INBOXED_SERVICES", folder.join("services"));
    let output = services.output().await.context(script)?;
    let said = String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned();
    ensure!(output.status.success(), "scripts/services {command}: {said}");
    Ok(String::from_utf8(output.stdout)?)
}
