//! The end of a process that takes webhooks.

use std::sync::Arc;
use std::time::Duration;

use inboxed::http::Webhook;
use inboxed::store::LetterState;
use inboxed::{Consumer, Shutdown};

use super::handlers::{Door, event_that, obey, wait};
use super::{Db, Shop};
use crate::client::{begin, head, post};
use crate::common::{event, until, within};
use crate::server::{serve, serve_until};

type App = Arc<Consumer<Db, Door>>;

fn waiting(shop: &Shop, door: &Door, grace: Duration) -> (App, Shutdown) {
    let app = shop.consumer().grace(grace).timeout(Duration::from_hours(1));
    let app = Arc::new(app.state(door.clone()).handle("events", wait));
    let shutdown = app.shutdown();
    (app, shutdown)
}

async fn run(app: App) {
    app.run_without_broker().await.unwrap();
}

#[tokio::test]
async fn request_that_runs_is_answered_and_then_all_ends() {
    let (shop, door) = (Shop::open().await, Door::closed());
    let (app, shutdown) = waiting(&shop, &door, Duration::from_mins(10));
    let begun = shutdown.clone();
    let webhook = Webhook::new(Arc::clone(&app), "events").unwrap();
    let (address, server) = serve_until(webhook, async move { begun.begun().await }).await;
    let running = tokio::spawn(run(app));
    let sending = tokio::spawn(post(address, event("a")));
    door.come(1).await;
    shutdown.begin();
    tokio::task::yield_now().await;
    assert!(!running.is_finished() && !server.is_finished() && !sending.is_finished());
    door.open();
    assert_eq!(within(sending).await.unwrap().text, "done");
    within(server).await.unwrap();
    within(running).await.unwrap();
    assert_eq!(shop.effects().await, ["a"]);
}

#[tokio::test]
async fn request_whose_sender_has_gone_is_waited_for() {
    let (shop, door) = (Shop::open().await, Door::closed());
    let (app, shutdown) = waiting(&shop, &door, Duration::from_mins(10));
    let address = serve(Webhook::new(Arc::clone(&app), "events").unwrap()).await;
    let request = head(&[&format!("Content-Length: {}", event("a").len())]) + &event("a");
    let sender = begin(address, request.as_bytes()).await.unwrap();
    door.come(1).await;
    drop(sender);
    let running = tokio::spawn(run(app));
    shutdown.begin();
    let refused = post(address, event("b")).await;
    assert_eq!((refused.status, refused.text.as_str()), (503, "shutting down"));
    assert!(!running.is_finished());
    door.open();
    within(running).await.unwrap();
    assert_eq!(shop.effects().await, ["a"], "committed by the time that the run has ended");
}

#[tokio::test]
async fn request_beyond_the_grace_period_is_rolled_back_uncounted_and_answered_503() {
    let (shop, door) = (Shop::open().await, Door::closed());
    let (app, shutdown) = waiting(&shop, &door, Duration::from_millis(50));
    let address = serve(Webhook::new(Arc::clone(&app), "events").unwrap()).await;
    let running = tokio::spawn(run(Arc::clone(&app)));
    let sending = tokio::spawn(post(address, event("a")));
    door.come(1).await;
    shutdown.begin();
    within(running).await.unwrap();
    let answer = within(sending).await.unwrap();
    assert_eq!((answer.status, answer.retry_after()), (503, Some(1)), "{answer:?}");
    assert!(shop.is_untouched().await);
    assert_eq!(shop.counted().await, 0);
    door.open();
    let again = app.deliver("events", event("a"), ()).await.unwrap();
    assert_eq!((again, shop.effects().await.len()), (inboxed::Outcome::Done, 1), "the next delivery isn't ended too");
}

#[tokio::test]
async fn process_that_only_takes_webhooks_handles_the_letters_that_are_sent_back() {
    let shop = Shop::open().await;
    let app = Arc::new(shop.consumer().handle("events", obey));
    let address = serve(Webhook::new(Arc::clone(&app), "events").unwrap()).await;
    assert_eq!(post(address, event_that("a", "Despair")).await.status, 202);
    let before = shop.letter().await;
    shop.inbox.dead_letters().redrive(before.id).await.unwrap();
    assert_eq!(shop.letter().await.state, LetterState::Redrive);
    let handled = until(async || shop.letter().await.state == LetterState::Open);
    within(app.run_without_broker_until(handled)).await.unwrap();
    assert!(shop.letter().await.updated_at > before.updated_at, "it failed again");
}
