//! Whatever consumers do, and in whatever order, no message is lost, and the messages of a key stay in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tokio::time::Instant;

use crate::memory::Message;
use crate::memory::group::{Answer, Chance, Entry, Group};
use crate::memory::message::Stored;

const LEASE: Duration = Duration::from_secs(10);
const RETENTION: Duration = Duration::from_secs(1_000_000);

#[derive(Clone, Debug)]
enum Step {
    Publish {
        key: Option<u8>,
    },
    Take,
    /// Settles one of the deliveries that a consumer still holds, in time or not.
    Settle {
        which: usize,
        answer: Answer,
    },
    LoseAck {
        which: usize,
    },
    Extend {
        which: usize,
    },
    Wait(u64),
}

fn answers() -> impl Strategy<Value = Answer> {
    prop_oneof![Just(Answer::Acknowledge), (0..20_u64).prop_map(|delay| Answer::Again(Duration::from_secs(delay)))]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => proptest::option::of(0..3_u8).prop_map(|key| Step::Publish { key }),
        6 => Just(Step::Take),
        4 => (any::<usize>(), answers()).prop_map(|(which, answer)| Step::Settle { which, answer }),
        1 => any::<usize>().prop_map(|which| Step::LoseAck { which }),
        1 => any::<usize>().prop_map(|which| Step::Extend { which }),
        2 => (0..15_u64).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 0..200)
}

/// A group under test, with what a consumer knows of it.
struct Run {
    group: Group,
    now: Instant,
    rng: fastrand::Rng,
    held: BTreeMap<u64, Entry>,
    published: u64,
    next_delivery: u64,
    done: BTreeSet<u64>,
    last_done: BTreeMap<Arc<str>, u64>,
}

impl Run {
    fn step(&mut self, step: &Step) {
        self.group.advance(self.now);
        match step {
            Step::Publish { key } => {
                self.published += 1;
                let message = Message::new("");
                let message = key.iter().fold(message, |message, key| message.key(key.to_string()));
                self.group.admit(Arc::new(Stored::new(message, self.published, self.now, RETENTION)));
            }
            Step::Take => self.take(),
            Step::Settle { which, answer } => {
                let Some((delivery, entry)) = self.pick(*which) else { return };
                let in_time = self.group.settle(delivery, *answer, self.now);
                if in_time && *answer == Answer::Acknowledge {
                    self.acknowledged(&entry);
                }
            }
            Step::LoseAck { which } => {
                if let Some((delivery, _)) = self.pick(*which) {
                    self.group.lose_ack(delivery, self.now);
                }
            }
            Step::Extend { which } => {
                if let Some((delivery, entry)) = self.pick(*which) {
                    let held = self.group.extend(delivery, self.now, LEASE);
                    assert_eq!(held, self.group.in_flight(delivery).is_some());
                    self.held.insert(delivery, entry);
                }
            }
            Step::Wait(seconds) => self.now += Duration::from_secs(*seconds),
        }
    }

    fn take(&mut self) {
        self.next_delivery += 1;
        let mut chance = Chance { rng: &mut self.rng, duplicates: 0.2, reorder: 4 };
        let Some(entry) = self.group.take(self.next_delivery, self.now, LEASE, &mut chance) else { return };
        if let Some(key) = &entry.message.key {
            let others = self.held.iter().filter(|(delivery, other)| {
                other.message.key.as_ref() == Some(key) && self.group.in_flight(**delivery).is_some()
            });
            assert_eq!(others.count(), 0, "two messages of one key are out at once");
        }
        self.held.insert(self.next_delivery, entry);
    }

    fn pick(&mut self, which: usize) -> Option<(u64, Entry)> {
        let delivery = *self.held.keys().nth(which.checked_rem(self.held.len())?)?;
        self.held.remove_entry(&delivery)
    }

    fn acknowledged(&mut self, entry: &Entry) {
        self.done.insert(entry.message.position);
        if let Some(key) = &entry.message.key {
            let before = self.last_done.insert(Arc::clone(key), entry.message.position);
            assert!(before <= Some(entry.message.position), "a key went backwards");
        }
    }
}

proptest! {
    #[test]
    fn no_message_is_lost_and_no_key_goes_backwards(steps in steps(), seed in any::<u64>()) {
        let mut run = Run {
            group: Group::default(),
            now: Instant::now(),
            rng: fastrand::Rng::with_seed(seed),
            held: BTreeMap::new(),
            published: 0,
            next_delivery: 0,
            done: BTreeSet::new(),
            last_done: BTreeMap::new(),
        };
        for step in &steps {
            run.step(step);
        }
        for _ in 0..10 * (run.published + 1) {
            run.step(&Step::Wait(20));
            run.step(&Step::Take);
            let newest = run.held.len().saturating_sub(1);
            run.step(&Step::Settle { which: newest, answer: Answer::Acknowledge });
        }
        prop_assert!(run.group.is_settled());
        prop_assert_eq!(run.done, (1..=run.published).collect());
    }
}
