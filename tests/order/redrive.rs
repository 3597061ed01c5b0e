//! Dead letters that an operator sends back: the table is their source.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use inboxed::memory::Memory;
use inboxed::store::{DeadLetterError, LetterState, Reason};
use inboxed::{Outcome, Shutdown, UnknownType, on, permanent};

use super::support::{Script, Shop, deliver, deliver_to_the_end, order, record, run_to_the_end, until};

#[tokio::test]
async fn redriven_letter_has_its_effect_once_and_is_closed_with_it() {
    let shop = Shop::open().await;
    let consumer = shop.scripted(&Script::fails(3));
    assert_eq!(deliver_to_the_end(&consumer, 7).await, Outcome::DeadLettered);
    let letter = shop.letter().await;
    assert_eq!(consumer.redrive().await.unwrap(), 0, "nobody has said so yet");

    shop.inbox.dead_letters().redrive(letter.id).await.unwrap();
    assert_eq!(consumer.redrive().await.unwrap(), 1);
    assert_eq!((shop.effects().await, shop.claims().await), (1, 1));
    assert_eq!(shop.letter().await.state, LetterState::Done);
    assert_eq!(consumer.redrive().await.unwrap(), 0);
    assert_eq!(deliver(&consumer, 7).await, Outcome::Duplicate, "the broker's copy comes late");
}

#[tokio::test]
async fn redrive_has_a_fresh_budget_of_attempts() {
    let shop = Shop::open().await;
    let script = Script::fails(5);
    let consumer = shop.scripted(&script);
    assert_eq!(deliver_to_the_end(&consumer, 7).await, Outcome::DeadLettered);
    assert_eq!(script.runs(), 3);
    let letter = shop.letter().await;
    shop.inbox.dead_letters().redrive(letter.id).await.unwrap();
    // Two more failures would have exhausted the first budget, and come back from the table each time.
    until("it is handled", async || {
        consumer.redrive().await.unwrap();
        shop.letter().await.state == LetterState::Done
    })
    .await;
    assert_eq!((script.runs(), shop.effects().await), (6, 1));
    let last = "SELECT attempt FROM attempts";
    assert_eq!(shop.number(last).await, 3);
}

#[tokio::test]
async fn redrive_that_fails_again_is_the_same_letter_open_again() {
    let shop = Shop::open().await;
    let script = Script::fails(u32::MAX);
    let consumer = shop.scripted(&script);
    assert_eq!(deliver_to_the_end(&consumer, 7).await, Outcome::DeadLettered);
    let letter = shop.letter().await;
    shop.inbox.dead_letters().redrive(letter.id).await.unwrap();
    until("it has failed again", async || {
        consumer.redrive().await.unwrap();
        shop.letter().await.state == LetterState::Open
    })
    .await;
    let again = shop.letter().await;
    assert_eq!((again.id, again.attempts, script.runs()), (letter.id, 3, 6));
    assert_eq!((again.body, again.headers), (letter.body, letter.headers));
}

#[tokio::test]
async fn done_letter_redriven_again_is_a_duplicate() {
    let shop = Shop::open().await;
    let script = Script::fails(3);
    let consumer = shop.scripted(&script);
    assert_eq!(deliver_to_the_end(&consumer, 7).await, Outcome::DeadLettered);
    let letter = shop.letter().await;
    for _ in 0..3 {
        shop.inbox.dead_letters().redrive(letter.id).await.unwrap();
        assert_eq!(consumer.redrive().await.unwrap(), 1);
        assert_eq!(shop.letter().await.state, LetterState::Done);
    }
    assert_eq!((script.runs(), shop.effects().await), (4, 1));
}

#[tokio::test]
async fn running_consumer_takes_letters_from_the_table_and_publishes_nothing() {
    let shop = Shop::open().await;
    let consumer = shop.scripted(&Script::fails(3));
    assert_eq!(deliver_to_the_end(&consumer, 7).await, Outcome::DeadLettered);
    shop.inbox.dead_letters().redrive(shop.letter().await.id).await.unwrap();
    let broker = Memory::new();
    let done = until("the letter is done", async || shop.letter().await.state == LetterState::Done);
    consumer.run_until(broker.clone(), done).await.unwrap();
    assert_eq!((shop.effects().await, broker.counts("orders").published), (1, 0));
}

#[tokio::test]
async fn discarded_letter_never_runs() {
    let shop = Shop::open().await;
    let script = Script::new(|run| if run == 1 { Err(permanent("no")) } else { Ok(()) });
    let consumer = shop.scripted(&script);
    assert_eq!(deliver(&consumer, 7).await, Outcome::DeadLettered);
    shop.inbox.dead_letters().discard(shop.letter().await.id).await.unwrap();
    assert_eq!(consumer.redrive().await.unwrap(), 0);
    assert_eq!((script.runs(), shop.letter().await.state), (1, LetterState::Discarded));
}

#[tokio::test]
async fn letter_too_old_needs_force() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    let long_ago = SystemTime::now() - Duration::from_hours(24 * 31);
    broker.publish("orders", inboxed::memory::Message::new(order(7)).sent_at(long_ago));
    let consumer = shop.consumer().handle("orders", record);
    run_to_the_end(&consumer, &broker, &["orders"]).await;
    let letter = shop.letter().await;
    assert_eq!((letter.reason, shop.effects().await), (Reason::TooOld, 0));

    let refused = shop.inbox.dead_letters().redrive(letter.id).await.unwrap_err();
    assert!(matches!(refused, DeadLetterError::TooOld(id) if id == letter.id), "{refused}");
    assert!(refused.to_string().contains("redrive_forced"), "{refused}");
    assert_eq!((consumer.redrive().await.unwrap(), shop.effects().await), (0, 0));
    shop.inbox.dead_letters().redrive_forced(letter.id).await.unwrap();
    assert_eq!(consumer.redrive().await.unwrap(), 1);
    assert_eq!((shop.effects().await, shop.letter().await.state), (1, LetterState::Done));
}

#[tokio::test]
async fn letter_of_unknown_type_finds_its_handler_after_the_deploy() {
    let shop = Shop::open().await;
    let typed = [("type", "OrderPlaced")];
    let before =
        shop.consumer().unknown_type(UnknownType::DeadLetter).handle(on("orders").header("type", "Paid"), record);
    assert_eq!(before.deliver("orders", order(7), typed).await.unwrap(), Outcome::DeadLettered);
    let letter = shop.letter().await;
    assert_eq!((letter.reason, letter.consumer.as_str()), (Reason::UnknownType, "shop/*"));

    let after = shop.consumer().handle(on("orders").header("type", "OrderPlaced"), record);
    shop.inbox.dead_letters().redrive(letter.id).await.unwrap();
    assert_eq!(after.redrive().await.unwrap(), 1);
    assert_eq!((shop.effects().await, shop.letter().await.state), (1, LetterState::Done));
}

/// Letters are taken some at a time; what isn't started when the consumer ends is there for the next.
#[tokio::test]
async fn letters_that_were_not_started_are_given_back_at_a_shutdown() {
    let shop = Shop::open().await;
    let failing = shop.scripted(&Script::new(|_| Err(permanent("not yet"))));
    for id in 1..=5 {
        assert_eq!(deliver(&failing, id).await, Outcome::DeadLettered);
    }
    for letter in shop.letters().await {
        shop.inbox.dead_letters().redrive(letter.id).await.unwrap();
    }
    let shutdown = Arc::new(OnceLock::<Shutdown>::new());
    let begin = Arc::clone(&shutdown);
    let consumer = shop.scripted(&Script::new(move |_| {
        begin.get().unwrap().begin();
        Ok(())
    }));
    shutdown.set(consumer.shutdown()).unwrap();
    consumer.run_without_broker().await.unwrap();
    assert_eq!(shop.effects().await, 1, "the first was under way");

    let next = shop.scripted(&Script::fails(0));
    until("the rest is handled", async || {
        next.redrive().await.unwrap();
        shop.effects().await == 5
    })
    .await;
}
