//! What becomes of a message: done, a duplicate, retried, a dead letter and back.

use inboxed::memory::{Memory, Message};
use inboxed::store::{LetterState, Reason};
use inboxed::{Outcome, permanent};

use super::{Shop, deliver, record, run_dry, scripted};
use crate::common::{Script, at_once, event};

#[tokio::test]
async fn message_is_done_once_and_a_duplicate_ever_after() {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("events", record);
    assert_eq!(deliver(&app, "events", event("a")).await, Outcome::Done);
    assert_eq!(deliver(&app, "events", event("a")).await, Outcome::Duplicate);
    assert_eq!(deliver(&app, "events", event("A")).await, Outcome::Done, "another key, whatever the collation");
    assert_eq!(deliver(&app, "events", event("a ")).await, Outcome::Done);
    assert_eq!((shop.claims().await, shop.effects().await.len()), (3, 3));
}

#[tokio::test]
async fn duplicates_and_lost_acknowledgements_of_a_broker_have_one_effect() {
    let shop = Shop::open().await;
    let broker = Memory::builder().duplicates(0.3).lose_acks(0.2).reorder(16).seed(3).build();
    for id in 0..200 {
        broker.publish("events", event(&format!("{id:03}")));
    }
    let app = shop.consumer().concurrency(8).handle("events", record);
    run_dry(&app, &broker, &["events"]).await;
    assert_eq!(shop.effects().await, (0..200).map(|id| format!("{id:03}")).collect::<Vec<_>>());
    assert!(broker.counts("events").deliveries > 200);
    assert!(shop.letters().await.is_empty());
}

#[tokio::test]
async fn failure_is_rolled_back_counted_and_retried() {
    let shop = Shop::open().await;
    // Not every database can hold such a text.
    let failing_once =
        Script::new(|_, attempt| if attempt == 1 { Err("out of stock: \0 \u{1f418}".into()) } else { Ok(()) });
    let app = shop.consumer().state(failing_once).handle("events", scripted);
    assert!(matches!(deliver(&app, "events", event("a")).await, Outcome::Retry(_)));
    assert_eq!((shop.claims().await, shop.effects().await.len(), shop.failed(1).await), (0, 0, 1));
    assert_eq!(deliver(&app, "events", event("a")).await, Outcome::Done);
    assert_eq!((shop.claims().await, shop.effects().await.len()), (1, 1));
    assert_eq!(shop.number("SELECT COUNT(*) FROM inbox_attempts").await, 0, "the success takes the count away");
}

#[tokio::test]
async fn permanent_error_is_a_dead_letter_that_redrive_brings_back_once() {
    let shop = Shop::open().await;
    let refusing = Script::new(|_, _| Err(permanent("no such product: \0")));
    let broken = shop.consumer().state(refusing).handle("events", scripted);
    assert_eq!(deliver(&broken, "events", event("a")).await, Outcome::DeadLettered);
    let letter = shop.letter().await;
    assert_eq!((letter.reason, &letter.body[..]), (Reason::Permanent, event("a").as_bytes()));
    assert_eq!((shop.claims().await, shop.effects().await.len()), (0, 0));

    let mended = Script::new(|_, _| Ok(()));
    let mended = shop.consumer().state(mended).handle("events", scripted);
    shop.inbox.dead_letters().redrive(letter.id).await.unwrap();
    assert_eq!(mended.redrive().await.unwrap(), 1);
    assert_eq!((shop.effects().await, shop.letter().await.state), (vec!["a".to_owned()], LetterState::Done));
    assert_eq!(deliver(&mended, "events", event("a")).await, Outcome::Duplicate, "the broker's copy comes late");
    assert_eq!(shop.effects().await.len(), 1);
}

#[tokio::test]
async fn exhausted_attempts_are_a_dead_letter_that_a_later_success_closes() {
    let shop = Shop::open().await;
    let failing = Script::new(|_, _| Err("no".into()));
    let broken = shop.consumer().retry(at_once(2)).state(failing).handle("events", scripted);
    assert!(matches!(deliver(&broken, "events", event("a")).await, Outcome::Retry(_)));
    assert_eq!(deliver(&broken, "events", event("a")).await, Outcome::DeadLettered);
    assert_eq!((shop.letter().await.reason, shop.letter().await.attempts), (Reason::AttemptsExhausted, 2));

    let mended = Script::new(|_, _| Ok(()));
    let mended = shop.consumer().state(mended).handle("events", scripted);
    assert_eq!(deliver(&mended, "events", event("a")).await, Outcome::Done);
    assert_eq!((shop.effects().await.len(), shop.letter().await.state), (1, LetterState::Done));
}

#[tokio::test]
async fn undecodable_bytes_and_headers_are_kept_to_the_byte() {
    let shop = Shop::open().await;
    let every_byte = (0..=255).collect::<Vec<u8>>();
    let broker = Memory::new();
    for _ in 0..2 {
        broker.publish("events", Message::new(every_byte.clone()).header("trace", every_byte.clone()));
    }
    let app = shop.consumer().handle("events", record);
    run_dry(&app, &broker, &["events"]).await;
    let letter = shop.letter().await;
    assert_eq!((letter.reason, &letter.body[..]), (Reason::Undecodable, &every_byte[..]));
    assert_eq!(letter.headers.get_bytes("trace"), Some(&every_byte[..]));
    assert_eq!((broker.counts("events").deliveries, shop.claims().await), (2, 0));
}
