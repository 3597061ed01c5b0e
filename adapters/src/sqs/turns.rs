//! The order within a group of a FIFO queue. One request brings several messages of a group, and the consumer runs what it
//! gets side by side: so it gets the first, and the next when that one is settled. What comes behind a message that wasn't
//! acknowledged goes back to the queue, which hands the group out from that message on.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use inboxed_runtime::broker::Incoming;
use tokio::sync::Notify;

use super::settler::SqsToken;

/// The groups of which a message is out.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Told when a message's turn has come.
    moved: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// What waits behind the message of each group that is out.
    waiting: HashMap<String, VecDeque<Incoming<SqsToken>>>,
    /// Those whose turn has come.
    due: VecDeque<Incoming<SqsToken>>,
}

impl State {
    fn give_back(&mut self, group: &str) {
        for incoming in self.waiting.remove(group).into_iter().flatten() {
            incoming.token.give_back();
        }
    }
}

/// A message's turn in its group. It is done when the message is gone from the queue; dropped before, the group is given back.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    group: Option<String>,
}

impl Turns {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a message as it comes, and answers with it if it is its turn.
    pub(super) fn admit(&self, group: &str, incoming: Incoming<SqsToken>) -> Option<Incoming<SqsToken>> {
        let mut state = self.state();
        if let Some(behind) = state.waiting.get_mut(group) {
            behind.push_back(incoming);
            return None;
        }
        state.waiting.insert(group.to_owned(), VecDeque::new());
        drop(state);
        incoming.token.take_turn(Turn { turns: self.clone(), group: Some(group.to_owned()) });
        Some(incoming)
    }

    /// The next message whose turn has come.
    pub(super) fn next_due(&self) -> Option<Incoming<SqsToken>> {
        self.state().due.pop_front()
    }

    /// Waits until a message's turn may have come.
    pub(super) async fn moved(&self) {
        self.0.moved.notified().await;
    }

    /// Gives back all that is here: nobody will ask for it.
    pub(super) fn close(&self) {
        let mut state = self.state();
        let groups = state.waiting.keys().cloned().collect::<Vec<_>>();
        for group in groups {
            state.give_back(&group);
        }
        let due = std::mem::take(&mut state.due);
        // A token that goes takes its turn with it, which looks at the state.
        drop(state);
        for incoming in due {
            incoming.token.give_back();
        }
    }
}

impl Turn {
    /// The deliveries that wait behind this one. Their lease is kept with its own.
    pub(super) fn behind(&self) -> Vec<SqsToken> {
        let state = self.turns.state();
        let waiting = self.group.as_ref().and_then(|group| state.waiting.get(group));
        waiting.into_iter().flatten().map(|incoming| incoming.token.clone()).collect()
    }

    /// The message is gone from the queue: it is the next one's turn.
    pub(super) fn done(mut self) {
        let Some(group) = self.group.take() else { return };
        let mut state = self.turns.state();
        let Some(next) = state.waiting.get_mut(&group).and_then(VecDeque::pop_front) else {
            state.waiting.remove(&group);
            return;
        };
        next.token.take_turn(Self { turns: self.turns.clone(), group: Some(group) });
        state.due.push_back(next);
        drop(state);
        self.turns.0.moved.notify_one();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(group) = self.group.take() {
            self.turns.state().give_back(&group);
        }
    }
}
