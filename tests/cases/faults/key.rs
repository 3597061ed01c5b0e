//! Keys: which deliveries are one message, and which never are.

use inboxed::store::Reason;
use inboxed::{BoxError, Decode, KeyError, KeyPart, KeyWriter, Outcome, Received, idempotent};
use serde::Deserialize;

use super::{Connection, Shop, deliver, effect};
use crate::common::counters::Counters;

#[derive(Deserialize)]
struct Payment {
    id: u64,
    amount: i64,
}

#[idempotent(key = "payment:{id}")]
async fn pay(payment: Payment, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(effect(tx, &format!("{} {}", payment.id, payment.amount)).await?)
}

#[derive(Deserialize)]
struct Transfer {
    from: String,
    to: String,
}

#[idempotent(key = "transfer:{from}:{to}")]
async fn transfer(message: Transfer, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(effect(tx, &format!("{} to {}", message.from, message.to)).await?)
}

#[tokio::test]
async fn k01_message_without_a_key_field_is_a_dead_letter_of_its_own() {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("payments", pay).handle("transfers", transfer);
    for body in [r#"{"amount":5}"#, r#"{"amount":7}"#, r#"{"id":null,"amount":5}"#] {
        assert_eq!(deliver(&app, "payments", body).await, Outcome::DeadLettered, "{body}");
    }
    assert_eq!(deliver(&app, "transfers", r#"{"from":"a"}"#).await, Outcome::DeadLettered);
    assert_eq!(deliver(&app, "transfers", r#"{"to":"b"}"#).await, Outcome::DeadLettered);

    let letters = shop.letters().await;
    assert_eq!(letters.len(), 5, "{letters:?}");
    for (letter, names) in letters.iter().zip(["`id`", "`id`", "null", "`to`", "`from`"]) {
        assert_eq!(letter.reason, Reason::Undecodable);
        assert!(letter.error.contains(names), "{}", letter.error);
    }
    assert_eq!(shop.effects().await, [""; 0]);
    assert_eq!(shop.keys().await, [""; 0]);
}

#[tokio::test]
async fn k02_blank_id_is_refused_each_time_and_never_dropped() {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("transfers", transfer);
    let blank = [
        r#"{"from":"","to":"x"}"#,
        r#"{"from":"","to":"y"}"#,
        r#"{"from":"a","to":""}"#,
        r#"{"from":"a","to":"   "}"#,
        r#"{"from":"\t\n\u00a0","to":"x"}"#,
    ];
    for body in blank {
        assert_eq!(deliver(&app, "transfers", body).await, Outcome::DeadLettered, "{body}");
    }
    let letters = shop.letters().await;
    assert_eq!(letters.iter().map(|letter| &letter.body[..]).collect::<Vec<_>>(), blank.map(str::as_bytes));
    assert!(letters.iter().all(|letter| letter.reason == Reason::BadKey && letter.error.contains("empty")));
    assert_eq!(shop.effects().await, [""; 0]);
}

#[tokio::test]
async fn k04_parts_joined_ambiguously_never_share_a_key() {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("transfers", transfer);
    let pairs = [
        ("a:b", "c"),
        ("a", "b:c"),
        ("ab", "c"),
        ("a", "bc"),
        ("a%3Ab", "c"),
        ("a", "b%3Ac"),
        ("a/b", "c"),
        ("a", "b/c"),
        ("1", "a"),
        ("01", "a"),
    ];
    for (from, to) in pairs {
        let body = serde_json::json!({ "from": from, "to": to }).to_string();
        assert_eq!(deliver(&app, "transfers", body.clone()).await, Outcome::Done, "{body}");
        assert_eq!(deliver(&app, "transfers", body.clone()).await, Outcome::Duplicate, "{body}");
    }
    // The number 1 isn't the text "1", and no half of a pair may be empty.
    for body in [r#"{"from":1,"to":"a"}"#, r#"{"from":"","to":"x"}"#, r#"{"from":"x","to":""}"#] {
        assert_eq!(deliver(&app, "transfers", body).await, Outcome::DeadLettered, "{body}");
    }
    assert_eq!(shop.effects().await.len(), pairs.len());
    assert_eq!(shop.keys().await.len(), pairs.len());
}

#[derive(Deserialize)]
struct Authorisation {
    order_id: u64,
    sent_at: String,
}

#[idempotent(key = "authorise:{order_id}")]
async fn authorise(message: Authorisation, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(effect(tx, &format!("{} at {}", message.order_id, message.sent_at)).await?)
}

#[tokio::test]
async fn k05_refreshed_time_stamp_beside_the_key_has_one_effect() {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("authorisations", authorise);
    let sent = |at: &str| format!(r#"{{"order_id":7,"sent_at":"{at}"}}"#);
    assert_eq!(deliver(&app, "authorisations", sent("12:00:00")).await, Outcome::Done);
    assert_eq!(deliver(&app, "authorisations", sent("12:00:30")).await, Outcome::Duplicate);
    assert_eq!(shop.effects().await, ["7 at 12:00:00"]);
}

/// A message under the name that its transport gave it.
struct Transported {
    transport_name: String,
    payment: Payment,
}

/// Takes the transport's name into the message, which nothing does by itself.
struct ByTransport;

impl Decode<Transported> for ByTransport {
    fn decode(&self, received: &Received) -> Result<Transported, BoxError> {
        let transport_name = received.headers.get("message-id").ok_or("no message-id")?.to_owned();
        Ok(Transported { transport_name, payment: serde_json::from_slice(&received.body)? })
    }
}

#[idempotent(key = (&message.transport_name))]
async fn pay_by_transport(message: Transported, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(effect(tx, &format!("{} by transport", message.payment.id)).await?)
}

#[tokio::test]
async fn k06_producer_retry_under_a_fresh_message_id_has_one_effect() {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("payments", pay).handle_with("by-transport", pay_by_transport, ByTransport);
    for source in ["payments", "by-transport"] {
        for message_id in ["f3b2", "9c01"] {
            app.deliver(source, r#"{"id":1,"amount":5}"#, [("message-id", message_id)]).await.unwrap();
        }
    }
    // Keyed by the event the retry is a duplicate; keyed by the transport, which has to be asked for, it isn't.
    assert_eq!(shop.effects().await, ["1 5", "1 by transport", "1 by transport"]);
}

#[derive(Deserialize)]
struct Deposit {
    account: u64,
    amount: i64,
}

/// Identity by content, which somebody has to ask for.
#[idempotent(key = "deposit:{account}:{amount}")]
async fn deposit_by_content(deposit: Deposit, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(effect(tx, &format!("deposit {} {}", deposit.account, deposit.amount)).await?)
}

#[tokio::test]
async fn k07_equal_content_is_no_identity_unless_asked_for_and_then_counted() {
    let counters = Counters::default();
    let _counting = metrics::set_default_local_recorder(&counters);
    let shop = Shop::open().await;
    let app = shop.consumer().handle("payments", pay).handle("deposits", deposit_by_content);
    // Two events that differ in nothing but their ids.
    assert_eq!(deliver(&app, "payments", r#"{"id":1,"amount":5}"#).await, Outcome::Done);
    assert_eq!(deliver(&app, "payments", r#"{"id":2,"amount":5}"#).await, Outcome::Done);
    // Two real deposits without ids: the key was asked to take them for one, and the counter says so.
    assert_eq!(deliver(&app, "deposits", r#"{"account":1,"amount":5}"#).await, Outcome::Done);
    assert_eq!(deliver(&app, "deposits", r#"{"account":1,"amount":5}"#).await, Outcome::Duplicate);
    assert_eq!(shop.effects().await, ["1 5", "2 5", "deposit 1 5"]);
    assert_eq!(counters.sum("inboxed.duplicate", ("consumer", "shop/pay")), 0);
    assert_eq!(counters.sum("inboxed.duplicate", ("consumer", "shop/deposit_by_content")), 1);
    assert_eq!(counters.sum("inboxed.duplicate", ("cause", "producer_retry")), 1);
}

/// A list whose order is part of its identity.
#[derive(Deserialize)]
struct Steps(Vec<String>);

impl KeyPart for Steps {
    fn write(&self, key: &mut KeyWriter) -> Result<(), KeyError> {
        self.0.iter().try_for_each(|step| {
            key.separator();
            key.text(step)
        })
    }
}

#[derive(Deserialize)]
struct Plan {
    a: u64,
    b: Point,
    steps: Steps,
}

#[derive(Deserialize)]
struct Point {
    x: i64,
    y: i64,
}

#[idempotent(key = "plan:{a}:{b.x}:{b.y}:{steps}")]
async fn plan(message: Plan, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(effect(tx, &format!("{} {} {} {}", message.a, message.b.x, message.b.y, message.steps.0.join(","))).await?)
}

#[tokio::test]
async fn k08_field_order_and_spacing_are_no_part_of_the_key_but_list_order_is() {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("plans", plan);
    let same = [
        r#"{"a":1,"b":{"x":1,"y":2},"steps":["p","q"]}"#,
        r#"{ "steps": ["p", "q"], "b": {"y":2, "x":1}, "a": 1 }"#,
        "{\"b\":{\"x\":1,\"y\":2},\n\t\"a\":1,\"steps\":[\"\\u0070\",\"q\"]}",
    ];
    for (body, outcome) in same.into_iter().zip([Outcome::Done, Outcome::Duplicate, Outcome::Duplicate]) {
        assert_eq!(deliver(&app, "plans", body).await, outcome, "{body}");
    }
    let other = r#"{"a":1,"b":{"x":1,"y":2},"steps":["q","p"]}"#;
    assert_eq!(deliver(&app, "plans", other).await, Outcome::Done);
    assert_eq!(shop.effects().await, ["1 1 2 p,q", "1 1 2 q,p"]);
}

#[tokio::test]
async fn k09_neighbouring_large_integers_never_share_a_key() {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("payments", pay);
    let exact = ["9007199254740992", "9007199254740993", "18446744073709551614", "18446744073709551615", "0"];
    for id in exact {
        let body = format!(r#"{{"id":{id},"amount":1}}"#);
        assert_eq!(deliver(&app, "payments", body).await, Outcome::Done, "{id}");
    }
    for id in ["18446744073709551616", "-0", "1e3", "1.0", "\"1\""] {
        let body = format!(r#"{{"id":{id},"amount":1}}"#);
        assert_eq!(deliver(&app, "payments", body).await, Outcome::DeadLettered, "{id}");
    }
    let mut keys = exact.map(|id| format!("payment:{id}"));
    keys.sort();
    assert_eq!(shop.keys().await, keys);
    assert_eq!(shop.effects().await.len(), exact.len());
}
