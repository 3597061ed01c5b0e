//! S09: the same event as it is, in SNS's envelope, and in EventBridge's.

use inboxed::sqs::{EventBridge, Sns};
use inboxed::store::Reason;
use inboxed::{Consumer, Json};
use serde_json::{Value, json};
use sqlx::Sqlite;

use super::Standard;
use crate::handlers::{Script, apply, body};
use crate::trial::{Deliveries, SERVICE, Trial, service};

/// As SNS puts it, under a new id each time.
fn notification(id: u64) -> Vec<u8> {
    let envelope = json!({
        "Type": "Notification",
        "MessageId": format!("{:032x}", fastrand::u128(..)),
        "TopicArn": "arn:aws:sns:us-east-1:000000000000:orders",
        "Message": String::from_utf8(body(id)).unwrap(),
        "Timestamp": "2026-01-01T00:00:00.000Z",
    });
    envelope.to_string().into_bytes()
}

/// As EventBridge puts it, under a new id each time, which lies where the message's own would.
fn event(id: u64) -> Vec<u8> {
    let envelope = json!({
        "version": "0",
        "id": fastrand::u64(..),
        "detail-type": "Applied",
        "source": "shop",
        "text": "not the message's",
        "detail": serde_json::from_slice::<Value>(&body(id)).unwrap(),
    });
    envelope.to_string().into_bytes()
}

fn shop(trial: &Trial<Standard>, script: &Script) -> Consumer<Sqlite, Script> {
    service(SERVICE, trial.inbox.clone(), script)
}

/// With the envelope declared, the key is the message's own: one effect, whatever it came in.
pub(crate) async fn s09_declared_envelope_has_the_key_inside() {
    let trial = Trial::<Standard>::new("s09_declared_envelope_has_the_key_inside").await;
    let (source, script) = (trial.source.as_str(), Script::plain());
    let rounds = [
        (shop(&trial, &script).handle_with(source, apply, Json), [body(1), body(1)]),
        (shop(&trial, &script).handle_with(source, apply, Sns::json()), [notification(1), notification(1)]),
        (shop(&trial, &script).handle_with(source, apply, EventBridge::json()), [event(1), event(1)]),
    ];
    for (consumer, messages) in rounds {
        let running = trial.run(consumer);
        for message in messages {
            trial.publish(message).await;
        }
        trial.settled().await;
        running.stop().await;
    }
    trial.count(1, Deliveries::Repeated).await;
    assert_eq!((script.steps().len(), trial.log.acknowledged()), (1, 6));
    assert!(trial.dead_letters().await.is_empty());
}

/// In another envelope than the declared one it is a dead letter with the reason, and no key is taken from the envelope.
pub(crate) async fn s09_undeclared_envelope_is_a_dead_letter() {
    let trial = Trial::<Standard>::new("s09_undeclared_envelope_is_a_dead_letter").await;
    let (source, script) = (trial.source.as_str(), Script::plain());
    let rounds = [
        (shop(&trial, &script).handle_with(source, apply, Json), notification(1), "missing field"),
        (shop(&trial, &script).handle_with(source, apply, Sns::json()), event(2), "no SNS notification"),
        (shop(&trial, &script).handle_with(source, apply, EventBridge::json()), body(3), "no EventBridge event"),
    ];
    for (consumer, message, text) in rounds {
        let before = trial.dead_letters().await.len();
        let running = trial.run(consumer);
        trial.publish(message.clone()).await;
        trial.settled().await;
        running.stop().await;
        let letters = trial.dead_letters().await;
        let letter = letters.iter().find(|letter| letter.body == message).expect("a dead letter");
        assert_eq!((letters.len(), letter.reason), (before + 1, Reason::Undecodable));
        assert!(letter.error.contains(text), "`{text}` isn't in: {}", letter.error);
    }
    assert!(script.steps().is_empty(), "a body ran");
}
