//! The one who starts, kills and cuts. Messages go in stages, so that each event meets some on their way.

use std::time::Duration;

use anyhow::Context as _;
use tokio::time::Instant;

use crate::arguments::{BrokerKind, Plan, Task};
use crate::events::{Event, Window, schedule};
use crate::fault::REACHED;
use crate::feed::DRAINED;
use crate::ledger;
use crate::process::Process;
use crate::publisher::PUBLISHED;
use crate::system::System;
use crate::tally::{Counts, Mark, Tally};
use crate::verdict::{Done, pronounce};

/// How many consumer processes there are where they can share a broker.
const CONSUMERS: usize = 3;

/// Nothing is waited for any longer: what isn't there then is a finding.
const PATIENCE: Duration = Duration::from_mins(1);

/// The longest run, whatever goes on in it.
const LONGEST: Duration = Duration::from_mins(20);

/// How long an event waits for the stage's first messages, if they don't come.
const QUIET: Duration = Duration::from_secs(3);

/// How long a consumer may take to come to the point at which it is to be killed after each step of messages, in how many steps they
/// come, and how many consumers are tried.
const UNTIL_REACHED: Duration = Duration::from_millis(500);
const STEPS: u64 = 8;
const TRIES: u64 = 5;

/// Runs the plan, and answers whether all was exact.
pub(crate) async fn supervise(plan: &Plan) -> anyhow::Result<bool> {
    println!(
        "soak           {:?} and {:?}, {} messages, seed {}{}",
        plan.broker,
        plan.database,
        plan.messages,
        plan.seed,
        plan.control.map(|control| format!(", control {control:?}")).unwrap_or_default()
    );
    let system = System::start(plan).await?;
    Tally::open(&plan.folder)?; // from now on there is one to be read
    let mut supervisor = Supervisor::start(plan, system)?;
    // From here on nothing is a failure of the set-up any more.
    let pronounced = async {
        supervisor.stages().await?;
        supervisor.end().await?;
        let (counts, books) = (Counts::read(&plan.folder)?, supervisor.system.books().await?);
        Ok(pronounce(plan, &supervisor.done, &counts, &books, &ledger::read(&plan.folder)?))
    };
    let pronounced = tokio::time::timeout(LONGEST, pronounced).await.context("it doesn't come to its end");
    pronounced.flatten().or_else(|error: anyhow::Error| {
        println!("failed: {error:#}");
        Ok(false)
    })
}

struct Supervisor<'a> {
    plan: &'a Plan,
    system: System,
    rng: fastrand::Rng,
    publisher: Process,
    consumers: Vec<Process>,
    done: Done,
}

impl<'a> Supervisor<'a> {
    fn start(plan: &'a Plan, system: System) -> anyhow::Result<Self> {
        let publisher = Process::start(&Task::Publish(system.run.clone()), &plan.folder, "publisher")?;
        let count = if plan.broker == BrokerKind::Memory { 1 } else { CONSUMERS };
        let consumers = (0..count).map(|number| consumer(&system, number)).collect::<anyhow::Result<Vec<_>>>()?;
        let done = Done { consumers: count, ..Done::default() };
        Ok(Self { plan, system, rng: fastrand::Rng::with_seed(plan.seed), publisher, consumers, done })
    }

    /// A stage for each event, and a last one without any.
    async fn stages(&mut self) -> anyhow::Result<()> {
        let events = schedule(self.plan, &mut self.rng);
        let stage = self.plan.messages / (events.len() as u64 + 1);
        for (number, event) in (0..).zip(events) {
            self.until(Mark::Published, number * stage, PATIENCE).await?;
            let handled = self.handled()?;
            self.publisher.tell(&(number * stage + stage / 2).to_string()).await;
            let some = self.rng.u64(1..=stage / 8);
            self.until(Mark::Handled, handled + some, QUIET).await?;
            let began = Instant::now();
            self.happen(event, stage, number * stage + stage).await?;
            eprintln!("{number:>3} {event:?} {:?}", began.elapsed());
            self.revive()?;
        }
        self.publisher.tell(&self.plan.messages.to_string()).await;
        Ok(())
    }

    /// One event, in the middle of messages; more come until `granted`.
    async fn happen(&mut self, event: Event, stage: u64, granted: u64) -> anyhow::Result<()> {
        match event {
            Event::Kill(window) => {
                self.kill_in(window, stage, granted).await?;
                return Ok(());
            }
            Event::KillDatabase => {
                self.system.kill_database().await?;
                tokio::time::sleep(Duration::from_millis(self.rng.u64(..1_500))).await;
                self.system.start_database().await?;
                self.done.database_kills += 1;
            }
            Event::Cut => {
                self.done.connections_cut += self.system.cut(self.done.cuts);
                self.done.cuts += 1;
            }
            Event::RestartBroker => {
                self.system.stop_broker(self.done.restarts).await?;
                tokio::time::sleep(Duration::from_millis(self.rng.u64(..1_500))).await;
                self.system.start_broker().await?;
                self.done.restarts += 1;
            }
        }
        // Whoever lived through this must go on by himself.
        let handled = self.handled()?;
        self.publisher.tell(&granted.to_string()).await;
        if !self.until(Mark::Handled, handled + 1, PATIENCE).await? {
            self.done.findings.push(format!("nothing was handled for {PATIENCE:?} after {event:?}"));
        }
        Ok(())
    }

    /// Kills a consumer in this window, or at any moment. One that doesn't come to its point, since others take all of
    /// the messages or it is still on its way to the broker, is killed where it is, and the next is tried.
    async fn kill_in(&mut self, window: Option<Window>, stage: u64, granted: u64) -> anyhow::Result<()> {
        // Each try has messages of its own, which come one after the other.
        let part = stage / 2 / TRIES;
        for number in 1..=TRIES {
            let victim = self.rng.usize(..self.consumers.len());
            let before = granted - part * (TRIES - number + 1);
            let reached = if let Some(window) = window {
                let point = window.points()[self.rng.usize(..window.points().len())];
                let passes = self.rng.u64(..(part / 2 / self.consumers.len() as u64).max(1));
                let victim = &mut self.consumers[victim];
                victim.tell(&format!("{point} {passes}")).await;
                let mut reached = None;
                for step in 1..=STEPS {
                    self.publisher.tell(&(before + part * step / STEPS).to_string()).await;
                    reached = victim.hear(REACHED, UNTIL_REACHED).await.map(|_| window);
                    if reached.is_some() {
                        break;
                    }
                }
                reached
            } else {
                self.publisher.tell(&(before + part).to_string()).await;
                tokio::time::sleep(Duration::from_millis(self.rng.u64(..300))).await;
                None
            };
            let replacement = consumer(&self.system, victim)?;
            std::mem::replace(&mut self.consumers[victim], replacement).kill().await?;
            self.done.kills.push(reached);
            if reached == window {
                break;
            }
        }
        self.publisher.tell(&granted.to_string()).await;
        Ok(())
    }

    /// A consumer that has ended by itself is a finding; the run goes on with another.
    fn revive(&mut self) -> anyhow::Result<()> {
        for (number, process) in self.consumers.iter_mut().enumerate() {
            if let Some(status) = process.ended()? {
                self.done.findings.push(format!("consumer {number} ended by itself, {status}"));
                *process = consumer(&self.system, number)?;
            }
        }
        Ok(())
    }

    /// Waits until everything is published and settled, and lets the consumers end.
    async fn end(&mut self) -> anyhow::Result<()> {
        self.until(Mark::Published, self.plan.messages, PATIENCE).await?;
        if self.publisher.hear(PUBLISHED, PATIENCE).await.is_none() {
            self.done.findings.push("the publisher didn't come to its end".to_owned());
        }
        match self.plan.broker {
            BrokerKind::Memory => {
                if self.consumers[0].hear(DRAINED, PATIENCE).await.is_none() {
                    self.done.findings.push(format!("messages are left unsettled after {PATIENCE:?}"));
                }
            }
            BrokerKind::Nats | BrokerKind::Sqs | BrokerKind::Rabbitmq => self.until_drained().await?,
        }
        if self.plan.control.is_some() {
            // What was acknowledged too soon may still be on its way, and isn't lost by our hand.
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        self.revive()?;
        for process in std::mem::take(&mut self.consumers) {
            match process.terminate(PATIENCE).await? {
                Some(status) if status.success() => {}
                // Written by hand, they know of no signal.
                _ if self.plan.control.is_some() => {}
                status => self.done.findings.push(format!("a consumer didn't end as it was asked to: {status:?}")),
            }
        }
        Ok(())
    }

    /// Waits until nothing is unsettled, as long as that goes on becoming less.
    async fn until_drained(&mut self) -> anyhow::Result<()> {
        let (mut least, mut since, mut before) = (u64::MAX, Instant::now(), u64::MAX);
        loop {
            let (undelivered, unacknowledged) = self.system.unsettled().await?;
            let unsettled = undelivered + unacknowledged;
            // Twice, since a message may go from what is counted last to what was counted first.
            if unsettled == 0 && before == 0 {
                return Ok(());
            }
            before = unsettled;
            if unsettled < least {
                (least, since) = (unsettled, Instant::now());
            }
            if since.elapsed() > PATIENCE {
                let left = format!("{undelivered} messages are undelivered, {unacknowledged} unacknowledged");
                self.done.findings.push(format!("{left}, and no fewer for {PATIENCE:?}"));
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn handled(&self) -> anyhow::Result<u64> {
        Ok(Counts::read(&self.plan.folder)?.of(Mark::Handled))
    }

    /// Waits until there are so many of these; `false` if nothing at all happens for so long.
    async fn until(&self, mark: Mark, many: u64, patience: Duration) -> anyhow::Result<bool> {
        let mut last = (Instant::now(), 0);
        loop {
            let counts = Counts::read(&self.plan.folder)?;
            if counts.of(mark) >= many {
                return Ok(true);
            }
            if counts.all() != last.1 {
                last = (Instant::now(), counts.all());
            } else if last.0.elapsed() > patience {
                return Ok(false);
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn consumer(system: &System, number: usize) -> anyhow::Result<Process> {
    Process::start(&Task::Consume(system.run.clone()), &system.run.folder, &format!("consumer-{number}"))
}
