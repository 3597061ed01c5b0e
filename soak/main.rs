//! The soak: real processes, a real broker and a real database, all of them killed and cut off under load, and then the
//! effects held against the publisher's own ledger. `scripts/soak` runs it and says what it takes.
//!
//! One program in three roles. The supervisor starts a publisher and consumers as processes of their own, lets messages go
//! in stages, and does one thing to the system in each. At the end it counts in the database, by its own SQL.

#![allow(clippy::duplicate_mod, reason = "the accounts are compiled for each database, with its types and SQL")]

mod arguments;
mod by_hand;
mod client;
mod consumer;
mod events;
mod fault;
mod feed;
mod ledger;
mod log;
mod mysql;
mod nats;
mod postgres;
mod process;
mod proxy;
mod publisher;
mod rabbitmq;
mod sqlite;
mod sqs;
mod supervisor;
mod system;
mod tally;
mod verdict;

use std::process::ExitCode;

use arguments::Task;

/// The task of a child process, as JSON; the supervisor has none.
const TASK: &str = "INBOXED_SOAK_TASK";

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match std::env::var(TASK).map(|task| serde_json::from_str::<Task>(&task)) {
        Ok(Ok(Task::Publish(run))) => publisher::publish(run).await.map(|()| true),
        Ok(Ok(Task::Consume(run))) => consumer::consume(run).await.map(|()| true),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => supervise().await,
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("soak: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether all was exact.
async fn supervise() -> anyhow::Result<bool> {
    let arguments = std::env::args().skip(1).collect::<Vec<_>>();
    if arguments.iter().any(|argument| argument == "--help") {
        print!("{}", arguments::USAGE);
        return Ok(true);
    }
    supervisor::supervise(&arguments::parse(arguments)?).await
}
