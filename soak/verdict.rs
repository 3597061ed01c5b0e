//! The end: the database's books against the publisher's ledger, and whether the run deserves its verdict.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::arguments::Plan;
use crate::consumer::CONCURRENCY;
use crate::events::Window;
use crate::ledger::{Message, SOURCES};
use crate::tally::{Counts, Mark};

/// So many examples are named.
const EXAMPLES: usize = 5;

/// What stands in the database.
pub(crate) struct Books {
    pub(crate) effects: i64,
    pub(crate) distinct: i64,
    pub(crate) claims: i64,
    pub(crate) dead_letters: i64,
    pub(crate) rows: Vec<Message>,
    pub(crate) balances: HashMap<i64, i64>,
}

/// What was done to the system.
#[derive(Default)]
pub(crate) struct Done {
    /// Kills by window.
    pub(crate) kills: Vec<Option<Window>>,
    pub(crate) database_kills: usize,
    pub(crate) cuts: usize,
    pub(crate) connections_cut: usize,
    pub(crate) restarts: usize,
    pub(crate) consumers: usize,
    /// What shouldn't have happened, beside the effects.
    pub(crate) findings: Vec<String>,
}

/// Prints everything, the verdict last, and answers whether all was exact.
pub(crate) fn pronounce(plan: &Plan, done: &Done, counts: &Counts, books: &Books, ledger: &[Message]) -> bool {
    let effects = Effects::compare(books, ledger);
    let bound = most_deliveries(done, counts);
    let failures = failures(plan, done, counts, books, bound);
    let count = |mark| counts.of(mark);

    println!(
        "published      {} messages, {} of them again by the producer, {} tried again",
        count(Mark::Published),
        count(Mark::Republished),
        count(Mark::Retried)
    );
    println!("deliveries     {} of {bound} at most", count(Mark::Delivered));
    println!(
        "duplicates     {} by redelivery, {} by the producer, {} of another payload",
        count(Mark::Redelivered),
        count(Mark::ProducerRetry),
        count(Mark::KeyConflict)
    );
    println!(
        "outcomes       {} given back uncounted, {} transactions run again, {} answers lost",
        count(Mark::GivenBack),
        count(Mark::Rerun),
        count(Mark::SettlementLost)
    );
    let windows = Window::ALL.map(|window| format!("{window} {}", done.killed(Some(window))));
    println!("kills          {}: {}, at any moment {}", done.kills.len(), windows.join(", "), done.killed(None));
    println!(
        "outages        {} kills of the database, {} cuts of {} connections, {} restarts of the broker",
        done.database_kills, done.cuts, done.connections_cut, done.restarts
    );
    println!(
        "database       {} effects, {} distinct, {} claims, {} dead letters",
        books.effects, books.distinct, books.claims, books.dead_letters
    );
    let expected = ledger.iter().map(|message| message.amount).sum::<i64>();
    println!(
        "balances       {} in {} accounts, {expected} expected",
        books.balances.values().sum::<i64>(),
        books.balances.len()
    );

    for (what, messages) in [("doubled", &effects.doubled), ("lost", &effects.lost)] {
        if !messages.is_empty() {
            println!("{what:<14} messages {}", examples(messages));
        }
    }
    if !effects.balances.is_empty() {
        println!("{:<14} accounts {}", "unbalanced", examples(&effects.balances));
    }
    for failure in &failures {
        println!("{:<14} {failure}", "failed");
    }
    let (verdict, exact) = if !effects.doubled.is_empty() {
        (format!("doubled: {} messages, {} lost", effects.doubled.len(), effects.lost.len()), false)
    } else if !effects.lost.is_empty() {
        (format!("lost: {} messages", effects.lost.len()), false)
    } else if !effects.balances.is_empty() {
        (format!("failed: {} accounts have another balance than the ledger", effects.balances.len()), false)
    } else if let Some(failure) = failures.first() {
        (format!("failed: {failure}"), false)
    } else {
        let deliveries = count(Mark::Delivered);
        (format!("exact: {} messages, {deliveries} deliveries, {} effects, 0 lost", ledger.len(), books.effects), true)
    };
    println!("{verdict}");
    exact
}

/// The most deliveries that this run can excuse: each publication once, each thing that was done may bring back twice
/// what all consumers held, and what the memory broker repeats by itself.
fn most_deliveries(done: &Done, counts: &Counts) -> u64 {
    let publications = [Mark::Published, Mark::Republished, Mark::Retried].iter().map(|mark| counts.of(*mark)).sum();
    let carried = counts.of(Mark::Fed).max(publications);
    let held = (done.consumers * CONCURRENCY * SOURCES.len()) as u64;
    let disturbances = (done.kills.len() + done.database_kills + done.cuts + done.restarts) as u64;
    let repeated = if counts.of(Mark::Fed) > 0 { carried / 10 } else { 0 };
    carried + repeated + disturbances * held * 2
}

/// Everything that is asked of a run beside its effects.
fn failures(plan: &Plan, done: &Done, counts: &Counts, books: &Books, bound: u64) -> Vec<String> {
    let mut failures = done.findings.clone();
    let mut demand = |holds: bool, failure: String| {
        if !holds {
            failures.push(failure);
        }
    };
    demand(counts.of(Mark::Published) == plan.messages, "not everything was published".to_owned());
    for window in Window::ALL {
        let kills = done.killed(Some(window));
        demand(kills >= 3, format!("{kills} kills in the window `{window}`"));
    }
    demand(done.kills.len() >= plan.kills, format!("{} kills", done.kills.len()));
    demand(done.cuts == 0 || done.connections_cut >= done.cuts, "a cut met no connection".to_owned());
    if plan.control.is_none() {
        demand(counts.of(Mark::Redelivered) > 0, "no duplicate by redelivery".to_owned());
        let by_producer = counts.of(Mark::ProducerRetry);
        demand(by_producer > 0 || plan.duplicates == 0.0, "no duplicate by the producer".to_owned());
        let claims = i64::try_from(plan.messages).unwrap_or(i64::MAX);
        demand(books.claims == claims, format!("{} claims", books.claims));
    }
    demand(counts.of(Mark::KeyConflict) == 0, "a payload was taken for another".to_owned());
    demand(books.dead_letters == 0, format!("{} dead letters", books.dead_letters));
    let deliveries = counts.of(Mark::Delivered);
    demand(deliveries <= bound, format!("{deliveries} deliveries, {bound} at most were to be expected"));
    failures
}

impl Done {
    fn killed(&self, window: Option<Window>) -> usize {
        self.kills.iter().filter(|kill| **kill == window).count()
    }
}

/// Messages and accounts that aren't as the ledger has them, by their numbers.
struct Effects {
    doubled: Vec<i64>,
    lost: Vec<i64>,
    balances: Vec<i64>,
}

impl Effects {
    fn compare(books: &Books, ledger: &[Message]) -> Self {
        let mut rows = BTreeMap::<i64, Vec<&Message>>::new();
        for row in &books.rows {
            rows.entry(row.id).or_default().push(row);
        }
        let mut effects = Self { doubled: Vec::new(), lost: Vec::new(), balances: Vec::new() };
        let mut expected = HashMap::<i64, i64>::new();
        for message in ledger {
            *expected.entry(message.account).or_default() += message.amount;
            match rows.remove(&message.id).unwrap_or_default().as_slice() {
                [] => effects.lost.push(message.id),
                // An effect of another message's values is its own twice over: it must not be there.
                [row] if *row == message => {}
                _ => effects.doubled.push(message.id),
            }
        }
        effects.doubled.extend(rows.into_keys());
        let accounts = expected.keys().chain(books.balances.keys()).copied().collect::<BTreeSet<_>>();
        let differs = |account: &i64| {
            let balance = |of: &HashMap<i64, i64>| of.get(account).copied().unwrap_or_default();
            balance(&expected) != balance(&books.balances)
        };
        effects.balances = accounts.into_iter().filter(differs).collect();
        effects
    }
}

/// The first few.
fn examples(numbers: &[i64]) -> String {
    let first = numbers.iter().take(EXAMPLES).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if numbers.len() > EXAMPLES { format!("{first}, … ({} in all)", numbers.len()) } else { first }
}
