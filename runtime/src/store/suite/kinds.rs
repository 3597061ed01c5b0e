//! The two kinds of inbox, with the keys' text and with digests: never both in one table.

use sha2::Digest as _;

use super::*;
use crate::store::{SchemaError, Value};

pub(crate) async fn a_row_holds_the_text_or_sixteen_bytes<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    let long = claim(&"k".repeat(255));
    deliver(inbox, &long).await.unwrap();
    let held = inbox.read("SELECT message_key FROM {inbox}", Vec::new()).await.unwrap().remove(0).0.remove(0);
    let bytes = match held {
        Value::Text(text) => text.into_bytes(),
        Value::Digest(digest) => digest.to_vec(),
        Value::Blob(digest) => digest,
        other => panic!("{other:?}"),
    };
    if inbox.is_lean() {
        assert_eq!(bytes, sha2::Sha256::digest(long.identity.name().as_str())[..16]);
    } else {
        assert_eq!(bytes, long.identity.name().as_str().as_bytes());
    }
}

pub(crate) async fn tables_of_the_other_kind_are_refused<F: Fixture>() {
    let fixture = ready::<F>().await;
    deliver(fixture.inbox(), &claim("order:1")).await.unwrap();
    let lean = fixture.inbox().is_lean();
    let other = Inbox::<F::Db>::options();
    let other = if lean { other } else { other.lean() }.with_pool(fixture.inbox().pool().clone()).unwrap();
    for refused in [other.migrate().await, other.verify().await] {
        let refused = refused.unwrap_err();
        assert!(matches!((&refused, lean), (SchemaError::Lean, true) | (SchemaError::NotLean, false)), "{refused:?}");
        assert!(refused.to_string().contains("lean") && refused.to_string().contains("`prefix`"), "{refused}");
    }
    fixture.inbox().migrate().await.unwrap();
    fixture.inbox().verify().await.unwrap();
    assert_eq!(verdict(fixture.inbox(), &claim("order:1")).await, DUPLICATE);
}

pub(crate) async fn both_kinds_live_side_by_side_under_two_prefixes<F: Fixture>() {
    let fixture = ready::<F>().await;
    let other = Inbox::<F::Db>::options().prefix("other_inbox");
    let other = if fixture.inbox().is_lean() { other } else { other.lean() };
    let other = other.with_pool(fixture.another().await.pool().clone()).unwrap();
    other.migrate().await.unwrap();
    other.verify().await.unwrap();
    deliver(fixture.inbox(), &claim("order:1")).await.unwrap();
    assert_eq!(verdict(&other, &claim("order:1")).await, FRESH);
}

/// An operator sees the text whatever the rows hold.
pub(crate) async fn attempts_and_letters_keep_the_text<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    inbox.record_failure(&claim("order:1"), "no stock").await.unwrap();
    super::letters::bury_key(inbox, "order:2", crate::store::Reason::Permanent).await;
    let texts = "SELECT {key_text} FROM {attempts} UNION ALL SELECT {key_text} FROM {dead_letters}";
    let rows = inbox.read(texts, Vec::new()).await.unwrap();
    let mut texts = rows.iter().map(|row| row.text(0).unwrap()).collect::<Vec<_>>();
    texts.sort_unstable();
    assert_eq!(texts, ["order:1", "order:2", "order:2"]);
    assert_eq!(super::letters::only_letter(inbox).await.key, Some(key("order:2")));
}
