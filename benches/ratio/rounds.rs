//! Rounds that take turns, so that a slower minute of the machine meets both sides.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use inboxed::store::Store;
use inboxed::{Consumer, Outcome};

use crate::contest::Contest;
use crate::order::Orders;

const ROUNDS: u32 = 7;

/// How long one side's part of a round takes.
pub(crate) const ROUND: Duration = Duration::from_secs(2);

/// Messages a second, round by round.
#[derive(Default)]
pub(crate) struct Rates(Vec<f64>);

impl Rates {
    pub(crate) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

impl fmt::Display for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let least = self.0.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.0.iter().copied().fold(0.0, f64::max);
        write!(f, "{:.0} messages/s ({least:.0}–{most:.0} in {} rounds)", self.median(), self.0.len())
    }
}

pub(crate) struct Rounds {
    pub(crate) by_hand: Rates,
    pub(crate) inboxed: Rates,
    pub(crate) tool: Option<Rates>,
}

/// One side's worker, which handles a message at a time.
trait Side: Send + 'static {
    fn handle(&mut self, body: Bytes) -> impl Future<Output = anyhow::Result<()>> + Send;
}

struct ByHand<C: Contest>(C::Connection);

impl<C: Contest> Side for ByHand<C> {
    async fn handle(&mut self, body: Bytes) -> anyhow::Result<()> {
        C::by_hand(&mut self.0, &body).await
    }
}

struct Inboxed<Db: Store>(Arc<Consumer<Db>>);

impl<Db: Store> Side for Inboxed<Db> {
    async fn handle(&mut self, body: Bytes) -> anyhow::Result<()> {
        let outcome = self.0.deliver("orders", body, ()).await?;
        ensure!(outcome == Outcome::Done, "a fresh message ended as {outcome:?}");
        Ok(())
    }
}

struct Worker<S> {
    side: S,
    orders: Orders,
    done: u32,
}

impl<S: Side> Worker<S> {
    fn new(side: S, number: u32) -> Self {
        Self { side, orders: Orders::of_worker(number), done: 0 }
    }

    async fn work(mut self, until: Instant) -> anyhow::Result<Self> {
        while Instant::now() < until {
            let body = self.orders.place();
            self.side.handle(body).await?;
            self.done += 1;
        }
        Ok(self)
    }
}

/// Lets all workers of one side work, and answers how many messages they did in a second.
async fn round<S: Side>(workers: &mut Vec<Worker<S>>) -> anyhow::Result<f64> {
    let done = |workers: &[Worker<S>]| workers.iter().map(|worker| f64::from(worker.done)).sum::<f64>();
    let before = done(workers);
    let began = Instant::now();
    let tasks = workers.drain(..).map(|worker| tokio::spawn(worker.work(began + ROUND))).collect::<Vec<_>>();
    for task in tasks {
        workers.push(task.await.context("a worker has died")??);
    }
    Ok((done(workers) - before) / began.elapsed().as_secs_f64())
}

pub(crate) async fn run<C: Contest>(contest: &C, workers: u32) -> anyhow::Result<Rounds> {
    let consumer = Arc::new(contest.consumer());
    let (mut by_hand, mut inboxed) = (Vec::new(), Vec::new());
    for number in 0..workers {
        by_hand.push(Worker::new(ByHand::<C>(contest.connect().await?), number));
        inboxed.push(Worker::new(Inboxed(Arc::clone(&consumer)), number));
    }
    let mut rounds = Rounds { by_hand: Rates::default(), inboxed: Rates::default(), tool: None };
    for number in 0..=ROUNDS {
        let (hand, ours) = (round(&mut by_hand).await?, round(&mut inboxed).await?);
        let tool = contest.tool(number).await?;
        // The first warms up.
        if number > 0 {
            rounds.by_hand.0.push(hand);
            rounds.inboxed.0.push(ours);
            if let Some(rate) = tool {
                rounds.tool.get_or_insert_default().0.push(rate);
            }
        }
    }
    let counts = contest.counts().await?;
    let done = inboxed.iter().map(|worker| i64::from(worker.done)).sum::<i64>();
    ensure!(counts.inboxed == done, "{done} messages were handled, and the tables say {counts:?}");
    ensure!(counts.effects == counts.inboxed + counts.by_hand, "not every claim has its one effect: {counts:?}");
    Ok(rounds)
}
