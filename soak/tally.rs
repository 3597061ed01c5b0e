//! What all processes have seen, as a file of one byte for each thing: whoever is killed has lost no count.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context as _;
use metrics::{Counter, CounterFn, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// A thing that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Mark {
    /// The producer published a message for the first time.
    Published = b'p',
    /// The producer published it again, as a producer does that doesn't remember.
    Republished = b'r',
    /// The producer didn't learn what became of a publication, and tried again.
    Retried = b'u',
    /// A publication went to a broker in a consumer process, for the first time or again after a kill.
    Fed = b'f',
    /// A consumer got a delivery.
    Delivered = b'D',
    /// An effect was committed, and the consumer lived to count it.
    Handled = b'H',
    /// A duplicate that the broker delivered again.
    Redelivered = b'R',
    /// A duplicate that the producer published again.
    ProducerRetry = b'P',
    /// A duplicate of another payload: there is none here.
    KeyConflict = b'K',
    /// A message was given back uncounted.
    GivenBack = b'G',
    /// A transaction ran again at once.
    Rerun = b'A',
    /// An answer came too late for the broker, or got lost on the way.
    SettlementLost = b'L',
}

/// The file, for everybody who counts.
pub(crate) struct Tally(File);

impl Tally {
    pub(crate) fn open(folder: &Path) -> anyhow::Result<Self> {
        let path = folder.join("tally");
        Ok(Self(OpenOptions::new().create(true).append(true).open(path).context("the tally")?))
    }

    /// Counts a thing, for good when this returns: the kernel keeps the byte for the killed.
    pub(crate) fn note(&self, mark: Mark) {
        self.note_times(mark, 1);
    }

    pub(crate) fn note_times(&self, mark: Mark, times: usize) {
        let marks = vec![mark as u8; times];
        if let Err(error) = (&self.0).write_all(&marks) {
            eprintln!("the tally: {error}");
        }
    }
}

/// The counts so far.
pub(crate) struct Counts(Vec<u8>);

impl Counts {
    pub(crate) fn read(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self(std::fs::read(folder.join("tally")).context("the tally")?))
    }

    pub(crate) fn of(&self, mark: Mark) -> u64 {
        self.0.iter().map(|byte| u64::from(*byte == mark as u8)).sum()
    }

    /// How many things of any kind.
    pub(crate) fn all(&self) -> usize {
        self.0.len()
    }
}

/// Puts what `inboxed` counts into the tally.
pub(crate) struct ToTally(pub(crate) Arc<Tally>);

struct Noting(Arc<Tally>, Mark);

impl CounterFn for Noting {
    fn increment(&self, value: u64) {
        self.0.note_times(self.1, usize::try_from(value).unwrap_or_default());
    }

    fn absolute(&self, _: u64) {}
}

impl Recorder for ToTally {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let cause = key.labels().find(|label| label.key() == "cause").map(metrics::Label::value);
        let mark = match (key.name(), cause) {
            ("inboxed.handled", _) => Mark::Handled,
            ("inboxed.duplicate", Some("redelivery")) => Mark::Redelivered,
            ("inboxed.duplicate", Some("producer_retry")) => Mark::ProducerRetry,
            ("inboxed.duplicate", Some("key_conflict")) => Mark::KeyConflict,
            ("inboxed.given_back", _) => Mark::GivenBack,
            ("inboxed.rerun", _) => Mark::Rerun,
            ("inboxed.settlement_lost", _) => Mark::SettlementLost,
            _ => return Counter::noop(),
        };
        Counter::from_arc(Arc::new(Noting(Arc::clone(&self.0), mark)))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
