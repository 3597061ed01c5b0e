//! Redrive: once more, from the beginning, and never twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use inboxed::memory::{Memory, Message};
use inboxed::store::{LetterId, LetterState};
use inboxed::{Consumer, Outcome, idempotent};

use super::{Connection, Db, Shop, deliver, effect, run_dry, scripted};
use crate::common::{Event, Script, at_once, event, until};

/// Sends a letter back and handles it until it is closed or open again.
async fn redrive<S>(shop: &Shop, app: &Consumer<Db, S>, letter: LetterId) -> LetterState {
    shop.inbox.dead_letters().redrive(letter).await.unwrap();
    let state = async || shop.inbox.dead_letters().get(letter).await.unwrap().unwrap().state;
    until(async || {
        app.redrive().await.unwrap();
        state().await != LetterState::Redrive
    })
    .await;
    state().await
}

/// A body that fails until it is mended, and how often it was entered.
#[derive(Clone)]
struct Mendable {
    failures_left: Arc<AtomicU32>,
    attempts: Arc<AtomicU32>,
}

impl Mendable {
    fn broken() -> Self {
        Self { failures_left: Arc::new(AtomicU32::new(u32::MAX)), attempts: Arc::default() }
    }

    fn mend_after(&self, failures: u32) {
        self.failures_left.store(failures, Ordering::SeqCst);
    }

    /// The number that the last attempt had.
    fn last_attempt(&self) -> u32 {
        self.attempts.load(Ordering::SeqCst)
    }

    fn script(&self, only: &'static str) -> Script {
        let this = self.clone();
        Script::new(move |id, attempt| {
            if id != only {
                return Ok(());
            }
            this.attempts.store(attempt, Ordering::SeqCst);
            let left = this.failures_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
            if left.is_ok() { Err("broken".into()) } else { Ok(()) }
        })
    }
}

#[tokio::test]
async fn s12_redrive_of_finished_work_changes_nothing_and_of_rolled_back_work_runs_once() {
    let shop = Shop::open().await;
    let body = Mendable::broken();
    let app = shop.consumer().retry(at_once(3)).state(body.script("b")).handle("events", scripted);
    // `a` commits and its acknowledgements are lost, so that a broker with a limit would bury it; `b` fails three times.
    let broker =
        Memory::builder().lose_ack_if(|delivery| delivery.body == event("a") && delivery.delivery_count <= 3).build();
    broker.publish("events", event("a"));
    broker.publish("events", event("b"));
    run_dry(&app, &broker, &["events"]).await;
    assert_eq!(shop.effects().await, ["a"]);
    let letter = shop.letters().await[0].id;

    body.mend_after(0);
    for _ in 0..2 {
        assert_eq!(deliver(&app, "events", event("a")).await, Outcome::Duplicate);
        assert_eq!(redrive(&shop, &app, letter).await, LetterState::Done);
        assert_eq!(shop.effects().await, ["a", "b"]);
    }
    assert_eq!(shop.letters().await.len(), 1);
}

#[idempotent(key = "event:{id}")]
async fn ship(message: Event, tx: &mut Connection) -> inboxed::Result<()> {
    effect(tx, &format!("{} shipped", message.id)).await?;
    Err("no carrier".into())
}

#[tokio::test]
async fn d01_two_handlers_of_one_event_have_letters_of_their_own() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    let body = Mendable::broken();
    let billing = shop.consumer().retry(at_once(2)).state(body.script("1")).handle("events", scripted);
    let shipping = shop.consumer().retry(at_once(2)).handle("events", ship);
    broker.publish("events", event("1"));
    run_dry(&billing, &broker.group("billing"), &["events"]).await;
    run_dry(&shipping, &broker.group("shipping"), &["events"]).await;
    let letters = shop.letters().await;
    let consumers = letters.iter().map(|letter| letter.consumer.as_str()).collect::<Vec<_>>();
    assert_eq!(consumers, ["shop/scripted", "shop/ship"]);

    body.mend_after(0);
    assert_eq!(redrive(&shop, &billing, letters[0].id).await, LetterState::Done);
    let states = shop.letters().await.iter().map(|letter| letter.state).collect::<Vec<_>>();
    assert_eq!(states, [LetterState::Done, LetterState::Open]);
    assert_eq!(shop.effects().await, ["1"]);
}

#[tokio::test]
async fn d02_redriven_letter_has_a_fresh_budget_and_one_effect() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    let body = Mendable::broken();
    let app = shop.consumer().retry(at_once(3)).state(body.script("a")).handle("events", scripted);
    broker.publish("events", Message::new(event("a")).header("x-delivery-count", "20"));
    run_dry(&app, &broker, &["events"]).await;
    assert_eq!(body.last_attempt(), 3);
    let letter = shop.letters().await.remove(0);
    assert_eq!((letter.attempts, letter.headers.get("x-delivery-count")), (3, Some("20")));

    // It still fails, and has its whole budget again.
    body.mend_after(3);
    assert_eq!(redrive(&shop, &app, letter.id).await, LetterState::Open);
    assert_eq!(body.last_attempt(), 3);
    body.mend_after(2);
    assert_eq!(redrive(&shop, &app, letter.id).await, LetterState::Done);
    assert_eq!(body.last_attempt(), 3);
    assert_eq!(shop.effects().await, ["a"]);

    assert_eq!(redrive(&shop, &app, letter.id).await, LetterState::Done);
    assert_eq!(shop.effects().await, ["a"], "a duplicate closes the letter and runs nothing");
    assert_eq!(shop.counted().await, 0);
}
