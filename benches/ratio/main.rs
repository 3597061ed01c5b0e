//! `inboxed` against the same SQL by hand: JSON bytes to a committed effect, one message a transaction.
//!
//! ```text
//! scripts/services start && eval "$(scripts/services env)"
//! cargo bench --bench ratio --features mysql,postgres -- postgres|mysql|sqlite single WORKERS [LOWEST]
//! ```
//!
//! By hand, each worker holds one connection: decode, key, `BEGIN`, `INSERT` of the key under a unique index, effect, `COMMIT`,
//! by statements that stay prepared. `inboxed` gets the same bytes by [`inboxed::Consumer::deliver`], as many at once: the
//! whole order, tasks and locks included, but no broker, which the loop by hand lacks too. Rounds take turns and the medians
//! are compared. Answers 1 if the ratio is below LOWEST (1.0 on Postgres, else 0.95), 2 if the loop by hand is
//! slower than it should be: 10 % behind `pgbench` on Postgres.

mod contest;
mod disk;
mod mysql;
mod order;
mod pgbench;
mod postgres;
mod rounds;
mod scratch;
mod sqlite;

use std::process::ExitCode;

use contest::Contest;
use rounds::Rounds;

const USAGE: &str =
    "usage: cargo bench --bench ratio --features mysql,postgres -- postgres|mysql|sqlite single WORKERS [LOWEST]";

/// The share of `pgbench` that the loop by hand must reach to be a fair opponent.
const HONEST: f64 = 0.9;

fn main() -> ExitCode {
    // cargo adds a flag of its own.
    let arguments = std::env::args().skip(1).filter(|argument| argument != "--bench").collect::<Vec<_>>();
    let [store, mode, workers, lowest @ ..] = arguments.as_slice() else { return usage() };
    let (Ok(workers), "single") = (workers.parse::<u32>(), mode.as_str()) else { return usage() };
    let lowest = match lowest {
        [] => None,
        [lowest] => match lowest.parse::<f64>() {
            Ok(lowest) => Some(lowest),
            Err(_) => return usage(),
        },
        _ => return usage(),
    };
    let measured = match (store.as_str(), workers) {
        (_, 0) => return usage(),
        ("postgres", _) => measure::<postgres::Postgres>(workers, lowest),
        ("mysql", _) => measure::<mysql::MySql>(workers, lowest),
        ("sqlite", _) => measure::<sqlite::Sqlite>(workers, lowest),
        _ => return usage(),
    };
    measured.unwrap_or_else(|error| {
        eprintln!("{error:#}");
        ExitCode::from(2)
    })
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

fn measure<C: Contest>(workers: u32, lowest: Option<f64>) -> anyhow::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let contest = C::open(workers).await?;
        let rounds = compare(&contest, workers).await;
        contest.discard().await?;
        Ok(report::<C>(&rounds?, workers, lowest.unwrap_or(C::LOWEST)))
    })
}

async fn compare<C: Contest>(contest: &C, workers: u32) -> anyhow::Result<Rounds> {
    println!("{}: {}", C::NAME, contest.settings().await?);
    println!("{}", disk::flush_time(&contest.data().await?)?);
    rounds::run(contest, workers).await
}

fn report<C: Contest>(rounds: &Rounds, workers: u32, lowest: f64) -> ExitCode {
    println!("by hand {}", rounds.by_hand);
    println!("inboxed {}", rounds.inboxed);
    let ratio = rounds.inboxed.median() / rounds.by_hand.median();
    println!("ratio {} single {workers} {ratio:.2}", C::NAME);
    if let Some(tool) = &rounds.tool {
        let honesty = rounds.by_hand.median() / tool.median();
        println!("pgbench {tool}, of which the loop by hand reaches {honesty:.2}");
        if honesty < HONEST {
            eprintln!("the loop by hand is too slow to be compared with");
            return ExitCode::from(2);
        }
    }
    if ratio < lowest {
        eprintln!("the ratio is below {lowest}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
