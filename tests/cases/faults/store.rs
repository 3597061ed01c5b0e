//! Keys in the table: byte for byte, of any length, within their namespace.

use inboxed::store::Reason;
use inboxed::{Consumer, Outcome, idempotent, on, permanent};
use serde::Deserialize;

use super::{Connection, Shop, deliver, effect, record};
use crate::common::{Event, at_once, event};

#[derive(Deserialize)]
struct Request {
    tenant: String,
    id: String,
}

#[idempotent(key = "request:{tenant}:{id}")]
async fn request(message: Request, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(effect(tx, &format!("{} of {}", message.id, message.tenant)).await?)
}

#[idempotent(key = "event:{id}")]
async fn invoice(message: Event, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(effect(tx, &format!("{} invoiced", message.id)).await?)
}

/// The handler `invoice` after a refactoring, under the name that its rows have.
#[idempotent(key = "event:{id}", consumer = "invoice")]
async fn send_invoice(message: Event, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(effect(tx, &format!("{} invoiced again", message.id)).await?)
}

#[tokio::test]
async fn k03_one_id_runs_once_for_each_handler_type_tenant_and_service() {
    let shop = Shop::open().await;
    let app = shop
        .consumer()
        .handle(on("events").header("type", "Recorded"), record)
        .handle(on("events").header("type", "Invoiced"), invoice)
        .handle("requests", request);
    for kind in ["Recorded", "Invoiced", "Recorded", "Invoiced"] {
        app.deliver("events", event("1"), [("type", kind)]).await.unwrap();
    }
    for tenant in ["a", "b", "a", "b"] {
        deliver(&app, "requests", format!(r#"{{"tenant":"{tenant}","id":"request-123"}}"#)).await;
    }
    let other_service = Consumer::new("warehouse", shop.inbox.clone()).handle("events", record);
    assert_eq!(deliver(&other_service, "events", event("1")).await, Outcome::Done);
    let once = ["1", "1", "1 invoiced", "request-123 of a", "request-123 of b"];
    assert_eq!(shop.effects().await, once);

    // A renamed function that keeps its name in the inbox opens no new history.
    let refactored = shop.consumer().handle("events", send_invoice);
    assert_eq!(deliver(&refactored, "events", event("1")).await, Outcome::Duplicate);
    assert_eq!(shop.effects().await, once);
}

/// Writes what every database can hold as text.
#[idempotent(key = "event:{id}")]
async fn record_escaped(message: Event, tx: &mut Connection) -> inboxed::Result<()> {
    Ok(effect(tx, &message.id.escape_default().to_string()).await?)
}

/// Delivers each id twice; each must run once and be noticed once.
async fn each_is_its_own(ids: &[&str]) -> Shop {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("events", record_escaped);
    for id in ids {
        assert_eq!(deliver(&app, "events", event(id)).await, Outcome::Done, "{id:?}");
    }
    for id in ids {
        assert_eq!(deliver(&app, "events", event(id)).await, Outcome::Duplicate, "{id:?}");
    }
    let mut expected = ids.iter().map(|id| id.escape_default().to_string()).collect::<Vec<_>>();
    expected.sort();
    assert_eq!(shop.effects().await, expected);
    shop
}

#[tokio::test]
async fn k11_unicode_forms_that_look_alike_are_different_messages() {
    each_is_its_own(&["caf\u{e9}", "cafe\u{301}", "\u{fb01}", "fi", "\u{212b}", "\u{c5}"]).await;
}

#[tokio::test]
async fn m03_case_accents_and_trailing_spaces_never_merge_two_keys() {
    each_is_its_own(&["evt_Ab1", "evt_aB1", "evt_äb1", "evt_ab1", "evt_ab1 ", " evt_ab1", "evt\u{df}", "evtss"]).await;
}

#[tokio::test]
async fn m05_four_byte_characters_never_cut_a_key_off() {
    each_is_its_own(&["ord-\u{1f418}-1", "ord-\u{1f418}-2", "ord-", "ord-?-1", "ord-\u{fffd}-1"]).await;
}

#[idempotent(key = "event:{id}")]
async fn refuse(message: Event, tx: &mut Connection) -> inboxed::Result<()> {
    effect(tx, "refused").await?;
    Err(permanent(format!("no such product: {}", message.id)))
}

#[tokio::test]
async fn p06_nul_in_a_key_is_kept_and_nul_in_a_payload_stays_in_its_dead_letter() {
    let shop = each_is_its_own(&["a\0b", "ab", "a", "\0ab", "ab\0"]).await;
    let keys = ["event:%00ab", "event:a", "event:a%00b", "event:ab", "event:ab%00"];
    assert_eq!(shop.keys().await, keys);

    let app = shop.consumer().retry(at_once(3)).handle("refused", refuse);
    let escaped = event("x\0y");
    assert_eq!(deliver(&app, "refused", escaped.clone()).await, Outcome::DeadLettered);
    let raw = "{\"id\":\"x\0y\"}";
    assert_eq!(deliver(&app, "refused", raw).await, Outcome::DeadLettered);
    let letters = shop.letters().await;
    let found = letters.iter().map(|letter| (&letter.body[..], letter.reason)).collect::<Vec<_>>();
    assert_eq!(found, [(escaped.as_bytes(), Reason::Permanent), (raw.as_bytes(), Reason::Undecodable)]);
    assert_eq!(shop.effects().await.len(), keys.len());
}

/// Text that doesn't compress, the same on each run.
fn noise(length: usize) -> String {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"[(state >> 58) as usize])
    };
    std::iter::repeat_with(&mut next).take(length).collect()
}

#[tokio::test]
async fn p07_keys_of_any_length_stay_distinct_and_fit_the_column() {
    let fixed = "event:".len();
    let mut ids = [255 - fixed, 256 - fixed, 255, 256, 2_048, 3_000, 10_000].map(noise).to_vec();
    ids.push("a".repeat(3_000));
    ids.push(format!("{}x", noise(2_999)));
    ids.push(format!("{}y", noise(2_999)));
    let shop = each_is_its_own(&ids.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let keys = shop.keys().await;
    assert_eq!(keys.iter().map(String::len).max(), Some(255));
    assert_eq!(keys.iter().filter(|key| key.contains('#')).count(), 9, "all but the first");
}
