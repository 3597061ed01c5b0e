//! The groups that read a source, and the log from which later groups start.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

use super::group::Group;
use super::message::Stored;

/// The groups of a source.
#[derive(Debug)]
pub(super) struct Readers {
    groups: HashMap<Arc<str>, Group>,
    log: VecDeque<Arc<Stored>>,
    replay: bool,
}

impl Readers {
    pub(super) fn new(replay: bool) -> Self {
        Self { groups: HashMap::new(), log: VecDeque::new(), replay }
    }

    /// Gives a message to every group, and keeps it for those that come later.
    pub(super) fn admit(&mut self, message: Arc<Stored>, now: Instant) {
        for group in self.groups.values_mut() {
            group.admit(Arc::clone(&message));
        }
        self.trim(now);
        if self.replay || self.groups.is_empty() {
            self.log.push_back(message);
        }
    }

    /// The group of this name. One that wasn't there starts with what is in the log.
    pub(super) fn join(&mut self, name: &Arc<str>, now: Instant) -> &mut Group {
        self.trim(now);
        let Self { groups, log, replay } = self;
        groups.entry(Arc::clone(name)).or_insert_with(|| {
            let mut group = Group::default();
            if *replay {
                for message in log.iter() {
                    group.admit(Arc::clone(message));
                }
            } else {
                for message in std::mem::take(log) {
                    group.admit(message);
                }
            }
            group
        })
    }

    fn trim(&mut self, now: Instant) {
        while self.log.front().is_some_and(|oldest| oldest.expires <= now) {
            self.log.pop_front();
        }
    }
}
