//! What redelivery does to a balance, and what the inbox makes of it. Reads deposits as JSON lines,
//! `{"event_id":"evt-1","account":7,"cents":250}`, from the file beside it, a file of yours, or standard input:
//! `cargo run --example quickstart [-- FILE | -]`.

use std::{collections::HashMap, error::Error, fs, io, path::Path, time::Duration};

use inboxed::broker::Source;
use inboxed::memory::{Memory, Message};
use inboxed::store::{DeadLetter, Filter};
use inboxed::{Consumer, Inbox, idempotent};
use serde::Deserialize;
use sqlx::{Sqlite, SqliteConnection, SqlitePool};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[derive(Deserialize)]
struct Deposit {
    event_id: String,
    account: i64,
    cents: i64,
}

/// The idempotent handler: claim, effect, commit and acknowledgement in the one order.
#[idempotent(key = "deposit:{event_id}")]
async fn deposit(event: Deposit, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    Ok(apply(&event, tx).await?)
}

/// The effect, which isn't safe to run twice: the balance, and a row in a table without any unique index.
async fn apply(event: &Deposit, tx: &mut SqliteConnection) -> sqlx::Result<()> {
    let balance = "INSERT INTO balances VALUES (?1, ?2) ON CONFLICT DO UPDATE SET cents = cents + ?2";
    sqlx::query(balance).bind(event.account).bind(event.cents).execute(&mut *tx).await?;
    sqlx::query("INSERT INTO effects VALUES (?)").bind(&event.event_id).execute(tx).await?;
    Ok(())
}

/// A process that consumes with the inbox.
async fn exact_consumer(database: String, broker: Memory) -> Result<()> {
    let inbox = Inbox::connect(&database).await?;
    inbox.migrate().await?;
    let app = Consumer::new("quickstart", inbox).handle("deposits", deposit);
    Ok(app.run(broker).await?)
}

/// A process that consumes by hand: effect, commit, acknowledge. It is careful, and it has no inbox.
async fn naive_consumer(database: String, broker: Memory) -> Result<()> {
    let pool = SqlitePool::connect(&database).await?;
    let mut source = broker.open("deposits").await?;
    while let Ok(deliveries) = source.receive(16).await {
        for delivery in deliveries {
            if let Ok(event) = serde_json::from_slice(&delivery.received.body) {
                let mut tx = pool.begin().await?;
                apply(&event, &mut tx).await?;
                tx.commit().await?;
            }
            source.settler().acknowledge_without_proof(delivery.token);
        }
    }
    Ok(())
}

/// Publishes every line, each twentieth twice, to a broker that repeats deliveries and loses acknowledgements.
fn publish(lines: &[String]) -> Memory {
    let broker = Memory::builder().lease(Duration::from_secs(1)).duplicates(0.05).lose_acks(0.05).seed(7).build();
    for (number, line) in (1..).zip(lines) {
        for _ in 0..=usize::from(number % 20 == 0) {
            broker.publish("deposits", Message::new(line.clone()).header("line", number.to_string()));
        }
    }
    broker.end_when_settled("deposits");
    broker
}

/// Runs one process after another: each of the first three is killed in the middle of its work.
fn run_processes<F>(broker: &Memory, process: impl Fn() -> F) -> Result<()>
where
    F: Future<Output = Result<()>> + Send + 'static,
{
    for kills in 0.. {
        let runtime = tokio::runtime::Runtime::new()?;
        let (process, before) = (runtime.spawn(process()), broker.counts("deposits").deliveries);
        while !process.is_finished() && (kills >= 3 || broker.counts("deposits").deliveries < before + 100) {
            std::thread::sleep(Duration::from_millis(1));
        }
        if process.is_finished() {
            return runtime.block_on(process)?;
        }
        runtime.shutdown_background(); // every task ends where it stands, as with its process
    }
    Ok(())
}

fn main() -> Result<()> {
    let events = match std::env::args().nth(1).as_deref() {
        None => fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/quickstart/events.jsonl"))?,
        Some("-") => io::read_to_string(io::stdin())?,
        Some(file) => fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?,
    };
    let lines = events.lines().map(str::to_owned).collect::<Vec<_>>();
    let parsed = lines.iter().filter_map(|line| serde_json::from_str::<Deposit>(line).ok());
    let expected = parsed.map(|event| (event.event_id, event.cents)).collect::<HashMap<_, _>>();
    let (messages, cents) = (i64::try_from(expected.len())?, expected.values().sum::<i64>());
    let folder = tempfile::tempdir()?;
    let row = |name: &str, (effects, distinct, cents): (i64, i64, i64)| {
        println!("{name:<10} {effects:>8} {:>8} {:>6} {cents:>14}", effects - distinct, messages - distinct);
    };

    println!("{:<10}  effects  doubled   lost        balance", "");
    row("expected", (messages, messages, cents));

    let (database, broker) = (new_database(&folder.path().join("naive.sqlite"))?, publish(&lines));
    run_processes(&broker, || naive_consumer(database.clone(), broker.clone()))?;
    row("naive", count(&database)?.0);

    let (database, broker) = (new_database(&folder.path().join("exact.sqlite"))?, publish(&lines));
    run_processes(&broker, || exact_consumer(database.clone(), broker.clone()))?;
    let ((effects, distinct, balance), dead_letters) = count(&database)?;
    row("idempotent", (effects, distinct, balance));

    print!("{dead_letters}");
    let lost = messages - distinct;
    let verdict = if (effects, lost, balance) == (messages, 0, cents) { "exact" } else { "wrong" };
    let deliveries = broker.counts("deposits").deliveries;
    println!("{verdict}: {messages} messages, {deliveries} deliveries, {effects} effects, {lost} lost");
    if verdict == "exact" { Ok(()) } else { Err("an effect was lost or doubled".into()) }
}

#[tokio::main]
async fn new_database(file: &Path) -> Result<String> {
    let database = format!("sqlite://{}?mode=rwc", file.display());
    let tables = "CREATE TABLE balances (account INTEGER PRIMARY KEY, cents INTEGER); CREATE TABLE effects (id TEXT)";
    sqlx::raw_sql(tables).execute(&SqlitePool::connect(&database).await?).await?;
    Ok(database)
}

/// Effects, distinct effects and the sum of the balances; and the dead letters.
#[tokio::main]
async fn count(database: &str) -> Result<((i64, i64, i64), String)> {
    let inbox = Inbox::<Sqlite>::connect(database).await?;
    inbox.migrate().await?;
    let count = "SELECT COUNT(*), COUNT(DISTINCT id), (SELECT COALESCE(SUM(cents), 0) FROM balances) FROM effects";
    let counts = sqlx::query_as(count).fetch_one(inbox.pool()).await?;
    let letters = inbox.dead_letters().list(Filter::default()).await?;
    let line = |letter: &DeadLetter| {
        format!("dead letter: line {}: {}\n", letter.headers.get("line").unwrap_or("?"), letter.error)
    };
    Ok((counts, letters.iter().map(line).collect::<Vec<_>>().concat()))
}
