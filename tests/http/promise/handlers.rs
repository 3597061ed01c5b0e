//! What bodies do after their effect: what the message says, wait at a door, or take their time and fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use inboxed::{Delivery, State, idempotent, permanent};
use serde::Deserialize;
use tokio::sync::Semaphore;

use super::{Connection, effect};
use crate::common::{Event, until};

/// A message that says what its body does.
#[derive(Deserialize)]
pub(crate) struct Order {
    id: String,
    #[serde(default)]
    does: Does,
}

#[derive(Default, Deserialize)]
enum Does {
    #[default]
    Nothing,
    Fail,
    Despair,
}

/// The bytes of a message whose body fails, or despairs: no retry can help.
pub(crate) fn event_that(id: &str, does: &str) -> String {
    serde_json::json!({ "id": id, "does": does }).to_string()
}

/// Writes the message's id as its effect, and then does what it says.
#[idempotent(key = "event:{id}", on_conflict = "dead_letter")]
pub(crate) async fn obey(order: Order, tx: &mut Connection) -> inboxed::Result<()> {
    effect(tx, &order.id).await?;
    match order.does {
        Does::Nothing => Ok(()),
        Does::Fail => Err("the warehouse is closed".into()),
        Does::Despair => Err(permanent("no such product")),
    }
}

/// A door that bodies wait at, their effect written.
#[derive(Clone)]
pub(crate) struct Door {
    come: Arc<AtomicUsize>,
    open: Arc<Semaphore>,
}

impl Door {
    pub(crate) fn closed() -> Self {
        Self { come: Arc::default(), open: Arc::new(Semaphore::new(0)) }
    }

    /// Opens for ever.
    pub(crate) fn open(&self) {
        self.open.close();
    }

    /// Waits until so many bodies have come.
    pub(crate) async fn come(&self, bodies: usize) {
        until(async || self.come.load(Ordering::SeqCst) == bodies).await;
    }
}

/// Writes the event's id as its effect, and waits at the door.
#[idempotent(key = "event:{id}")]
pub(crate) async fn wait(event: Event, tx: &mut Connection, State(door): State<Door>) -> inboxed::Result<()> {
    effect(tx, &event.id).await?;
    door.come.fetch_add(1, Ordering::SeqCst);
    let _opened = door.open.acquire().await;
    Ok(())
}

/// Writes the event's id as its effect, takes its time, and fails twice.
#[idempotent(key = "event:{id}")]
pub(crate) async fn slowly(event: Event, tx: &mut Connection, delivery: &Delivery) -> inboxed::Result<()> {
    effect(tx, &event.id).await?;
    tokio::time::sleep(Duration::from_millis(20)).await;
    if delivery.attempt() < 3 { Err("not yet".into()) } else { Ok(()) }
}
