//! The suite's handler: one write to a table without a unique index, then whatever the row's script says.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use inboxed::{Delivery, State, idempotent};
use serde::{Deserialize, Serialize};
use sqlx::SqliteConnection;

/// A message of the suite.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Message {
    pub(crate) id: u64,
    pub(crate) text: String,
}

/// The bytes of the suite's message with this number.
pub(crate) fn body(id: u64) -> Vec<u8> {
    serde_json::to_vec(&Message { id, text: format!("\u{e4}\u{1f980} {id}") }).unwrap()
}

/// What a script knows of the run that it is part of.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) id: u64,
    pub(crate) attempt: u32,
    pub(crate) lease_lost: bool,
}

type Ending = Pin<Box<dyn Future<Output = inboxed::Result<()>> + Send>>;

/// What a row's handler does after its write, and the runs that it has begun.
#[derive(Clone)]
pub(crate) struct Script {
    who: Arc<str>,
    after_write: Arc<dyn Fn(Step) -> Ending + Send + Sync>,
    steps: Arc<Mutex<Vec<Step>>>,
}

impl Script {
    pub(crate) fn new<F>(after_write: impl Fn(Step) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = inboxed::Result<()>> + Send + 'static,
    {
        let after_write = Arc::new(move |step| Box::pin(after_write(step)) as Ending);
        Self { who: Arc::from("anyone"), after_write, steps: Arc::default() }
    }

    /// A script that does nothing more.
    pub(crate) fn plain() -> Self {
        Self::new(async |_| Ok(()))
    }

    /// Writes this name beside the effect.
    pub(crate) fn named(mut self, who: &str) -> Self {
        self.who = who.into();
        self
    }

    /// The runs that have begun, of all clones.
    pub(crate) fn steps(&self) -> Vec<Step> {
        self.steps.lock().unwrap().clone()
    }

    pub(crate) fn started(&self, id: u64) -> bool {
        self.steps.lock().unwrap().iter().any(|step| step.id == id)
    }
}

#[idempotent(key = "message:{id}")]
pub(crate) async fn apply(
    message: Message,
    delivery: &Delivery,
    State(script): State<Script>,
    tx: &mut SqliteConnection,
) -> inboxed::Result<()> {
    let step = Step { id: message.id, attempt: delivery.attempt(), lease_lost: delivery.lease_lost() };
    script.steps.lock().unwrap().push(step.clone());
    sqlx::query("INSERT INTO effects (who, id, source, attempt) VALUES (?, ?, ?, ?)")
        .bind(&*script.who)
        .bind(i64::try_from(message.id)?)
        .bind(delivery.source())
        .bind(delivery.attempt())
        .execute(tx)
        .await?;
    (script.after_write)(step).await
}
