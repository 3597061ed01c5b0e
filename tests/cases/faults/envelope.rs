//! What comes around a message: envelopes and headers, declared or not.

use std::borrow::Cow;

use inboxed::memory::{Memory, Message};
use inboxed::store::Reason;
use inboxed::{BoxError, Decode, Outcome, Received, UnknownType, idempotent, on};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Connection, Shop, deliver, effect, record, run_dry};
use crate::common::counters::Counters;
use crate::common::event;

#[derive(Deserialize)]
struct Order {
    order_id: String,
}

#[idempotent(key = "order:{order_id}")]
async fn order(message: Order, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(effect(tx, &message.order_id).await?)
}

/// A notification of SNS: the message is the text of one of its fields.
struct Sns;

#[derive(Deserialize)]
struct Notification {
    #[serde(rename = "Type")]
    kind: String,
    #[serde(rename = "Message")]
    message: String,
}

impl<M: DeserializeOwned> Decode<M> for Sns {
    fn decode(&self, received: &Received) -> Result<M, BoxError> {
        let notification: Notification = serde_json::from_slice(&received.body)?;
        if notification.kind != "Notification" {
            return Err("not a notification".into());
        }
        Ok(serde_json::from_str(&notification.message)?)
    }

    fn payload<'a>(&self, received: &'a Received) -> Cow<'a, [u8]> {
        match serde_json::from_slice::<Notification>(&received.body) {
            Ok(notification) => Cow::Owned(notification.message.into_bytes()),
            Err(_) => Cow::Borrowed(&received.body),
        }
    }
}

/// An event of `EventBridge`: the message is the object in one of its fields.
struct EventBridge;

#[derive(Deserialize)]
struct Bridged<M> {
    #[serde(rename = "detail-type")]
    _kind: String,
    detail: M,
}

impl<M: DeserializeOwned> Decode<M> for EventBridge {
    fn decode(&self, received: &Received) -> Result<M, BoxError> {
        let bridged: Bridged<M> = serde_json::from_slice(&received.body)?;
        Ok(bridged.detail)
    }

    fn payload<'a>(&self, received: &'a Received) -> Cow<'a, [u8]> {
        match serde_json::from_slice::<Bridged<serde_json::Value>>(&received.body) {
            Ok(bridged) => Cow::Owned(bridged.detail.to_string().into_bytes()),
            Err(_) => Cow::Borrowed(&received.body),
        }
    }
}

const RAW: &str = r#"{"order_id":"o-1"}"#;

fn notification(message_id: &str) -> String {
    serde_json::json!({ "Type": "Notification", "MessageId": message_id, "Message": RAW }).to_string()
}

fn bridged(id: &str) -> String {
    let detail = serde_json::from_str::<serde_json::Value>(RAW).unwrap();
    serde_json::json!({ "id": id, "detail-type": "OrderPlaced", "detail": detail }).to_string()
}

#[tokio::test]
async fn s09_declared_envelopes_lead_to_one_key() {
    let counters = Counters::default();
    let _counting = metrics::set_default_local_recorder(&counters);
    let shop = Shop::open().await;
    let app = shop.consumer().handle("raw", order).handle_with("sns", order, Sns).handle_with(
        "eventbridge",
        order,
        EventBridge,
    );
    assert_eq!(deliver(&app, "raw", RAW).await, Outcome::Done);
    for source in ["sns", "eventbridge"] {
        for id in ["8f0e", "77d1"] {
            let body = if source == "sns" { notification(id) } else { bridged(id) };
            assert_eq!(deliver(&app, source, body).await, Outcome::Duplicate, "{source} {id}");
        }
    }
    assert_eq!(shop.effects().await, ["o-1"]);
    assert_eq!(shop.keys().await, ["order:o-1"]);
    // A fresh envelope around the same payload is a producer's retry, and no key conflict.
    assert_eq!(counters.sum("inboxed.duplicate", ("cause", "key_conflict")), 0);
    assert_eq!(counters.sum("inboxed.duplicate", ("cause", "producer_retry")), 4);
}

#[tokio::test]
async fn s09_envelope_in_the_wrong_mode_is_a_dead_letter_and_gives_no_key() {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("raw", order).handle_with("sns", order, Sns).handle_with(
        "eventbridge",
        order,
        EventBridge,
    );
    let wrong = [
        ("raw", notification("8f0e")),
        ("raw", bridged("77d1")),
        ("sns", RAW.to_owned()),
        ("sns", bridged("77d1")),
        ("eventbridge", RAW.to_owned()),
        ("eventbridge", notification("8f0e")),
    ];
    for (source, body) in &wrong {
        assert_eq!(deliver(&app, source, body.clone()).await, Outcome::DeadLettered, "{source}: {body}");
    }
    let letters = shop.letters().await;
    assert_eq!(letters.len(), wrong.len());
    assert!(letters.iter().all(|letter| letter.reason == Reason::Undecodable && !letter.error.is_empty()));
    assert_eq!(shop.keys().await, [""; 0]);
    assert_eq!(shop.effects().await, [""; 0]);
}

/// A message whose identity stands in a header.
struct Headed {
    id: String,
}

/// Accepts the header as text; any other type of it explains itself to the operator.
struct ByHeader;

impl Decode<Headed> for ByHeader {
    fn decode(&self, received: &Received) -> Result<Headed, BoxError> {
        let id = received.headers.get_bytes("idempotency-key").ok_or("the header idempotency-key is missing")?;
        let id = std::str::from_utf8(id).map_err(|_| "the header idempotency-key isn't text")?;
        Ok(Headed { id: id.to_owned() })
    }
}

#[idempotent(key = "headed:{id}")]
async fn headed(message: Headed, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(effect(tx, &message.id).await?)
}

#[tokio::test]
async fn r06_missing_and_odd_headers_are_dead_letters_and_the_next_message_runs() {
    let shop = Shop::open().await;
    let broker = Memory::new();
    let app = shop
        .consumer()
        .handle_with("headed", headed, ByHeader)
        .handle(on("typed").header("type", "Recorded"), record)
        .unknown_type(UnknownType::DeadLetter);
    broker.publish("headed", "no properties at all");
    broker.publish("headed", Message::new("bytes").header("idempotency-key", vec![0xff, 0xfe, 0x00]));
    broker.publish("headed", Message::new("empty").header("idempotency-key", ""));
    broker.publish("headed", Message::new("good").header("x-death", "not a table").header("Idempotency-Key", "k-1"));
    broker.publish("typed", "no type");
    broker.publish("typed", Message::new("odd type").header("type", vec![0xff]));
    broker.publish("typed", Message::new(event("e-1")).header("type", "Recorded"));
    run_dry(&app, &broker, &["headed", "typed"]).await;

    assert_eq!(shop.effects().await, ["e-1", "k-1"]);
    assert_eq!(shop.keys().await, ["event:e-1", "headed:k-1"]);
    let mut refused = Vec::new();
    for letter in shop.letters().await {
        refused.push((String::from_utf8(letter.body.to_vec()).unwrap(), letter.reason));
        assert!(!letter.error.is_empty());
    }
    refused.sort_by(|(one, _), (other, _)| one.cmp(other));
    let expected = [
        ("bytes", Reason::Undecodable),
        ("empty", Reason::BadKey),
        ("no properties at all", Reason::Undecodable),
        ("no type", Reason::UnknownType),
        ("odd type", Reason::UnknownType),
    ];
    assert_eq!(refused, expected.map(|(body, reason)| (body.to_owned(), reason)));
    let deliveries = ["headed", "typed"].map(|source| broker.counts(source).deliveries);
    assert_eq!(deliveries, [4, 3], "nothing was tried twice");
}
