//! Keys tell every two messages apart, and are the same bytes everywhere.

use inboxed::{
    Handler, Identity, Json, Key, KeyError, KeyPart, KeyWriter, MAX_KEY_BYTES, Received, Refusal, idempotent,
};
use proptest::prelude::*;
use serde::Deserialize;
use sqlx::{Sqlite, SqliteConnection};

/// The key that the one part makes by itself.
fn key(part: &impl KeyPart) -> String {
    KeyWriter::new().part("part", part).and_then(KeyWriter::finish).unwrap().as_str().to_owned()
}

/// What a handler makes of a message's bytes.
fn prepare(handler: &impl Handler<Sqlite, (), Json>, body: &str) -> Result<String, Refusal> {
    let prepared = handler.prepare(&Received::new("orders", body.to_owned()), &Json)?;
    Ok(prepared.identity.name().as_str().to_owned())
}

#[derive(Deserialize)]
struct ById {
    id: u64,
}

#[idempotent(key = "order:{id}")]
async fn by_number(order: ById, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    sqlx::query("INSERT INTO effects VALUES (?)").bind(order.id.to_string()).execute(tx).await?;
    Ok(())
}

#[derive(Deserialize)]
struct ByName {
    tenant: String,
    id: String,
}

#[idempotent(key = "{tenant}/{id}")]
async fn by_name(order: ByName, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    sqlx::query("INSERT INTO effects VALUES (?, ?)").bind(order.tenant).bind(order.id).execute(tx).await?;
    Ok(())
}

#[test]
fn numbers_keep_every_digit() {
    assert_eq!(key(&9_007_199_254_740_991_u64), "9007199254740991");
    assert_eq!(key(&9_007_199_254_740_993_u64), "9007199254740993");
    assert_eq!(key(&u64::MAX), "18446744073709551615");
    assert_eq!(key(&i64::MIN), "-9223372036854775808");
    assert_eq!(key(&u128::MAX), "340282366920938463463374607431768211455");
    assert_eq!(key(&0_u8), "0");
}

#[test]
fn other_values_have_one_spelling() {
    assert_eq!(key(&true), "true");
    assert_eq!(key(&false), "false");
    assert_eq!(key(&'x'), "x");
    assert_eq!(key(&':'), "%3A");
    assert_eq!(key(&(1_u8, "a:b", 'c')), "1:a%3Ab:c");
}

#[cfg(feature = "uuid")]
#[test]
fn a_uuid_is_lower_case_with_hyphens() {
    let id = uuid::Uuid::from_u128(0x67E5_5044_10B1_426F_9247_BB68_0E5F_E0C8);
    assert_eq!(key(&id), "67e55044-10b1-426f-9247-bb680e5fe0c8");
}

#[test]
fn text_is_encoded_byte_for_byte() {
    assert_eq!(key(&"a-b.c_d~e"), "a-b.c_d~e");
    assert_eq!(key(&"a\0b"), "a%00b");
    assert_eq!(key(&"o'brien"), "o%27brien");
    assert_eq!(key(&"\"; DROP TABLE inbox --"), "%22%3B%20DROP%20TABLE%20inbox%20--");
    assert_eq!(key(&"tail  "), "tail%20%20");
    assert_eq!(key(&"ID"), "ID");
    assert_eq!(key(&"id"), "id");
    assert_eq!(key(&"50%"), "50%25");
    assert_eq!(key(&"a#b"), "a%23b");
    assert_eq!(key(&"🐘"), "%F0%9F%90%98");
    assert_eq!(key(&"caf\u{e9}"), "caf%C3%A9");
    assert_eq!(key(&"cafe\u{301}"), "cafe%CC%81");
}

#[test]
fn an_empty_part_is_refused_by_name() {
    let refused = KeyWriter::new().literal("order:").part("order_id", "").unwrap_err();
    assert_eq!(refused, KeyError::Empty { part: "order_id".to_owned() });
    assert!(KeyWriter::new().part("pair", &("a", "")).is_err(), "a member of a tuple");
    assert!(KeyWriter::new().finish().is_err(), "no part at all");
}

#[test]
fn a_part_that_writes_nothing_is_refused() {
    struct Silent;
    impl KeyPart for Silent {
        fn write(&self, _: &mut KeyWriter) -> Result<(), KeyError> {
            Ok(())
        }
    }
    let refused = KeyWriter::new().part("silent", &Silent).unwrap_err();
    assert_eq!(refused, KeyError::Empty { part: "silent".to_owned() });
}

#[test]
fn a_long_key_is_a_prefix_and_a_digest() {
    assert_eq!(key(&"x".repeat(255)), "x".repeat(255));
    let long = key(&"x".repeat(256));
    let digest = "85e62acd750c4eb56b7b6a1d66dca5bfaac5f062608a1a893410d0288936c09a";
    assert_eq!(long.len(), MAX_KEY_BYTES);
    assert_eq!(long[..191], format!("{}#", "x".repeat(190)));
    assert_eq!(&long[191..], digest);
}

#[test]
fn long_keys_with_a_common_prefix_stay_apart() {
    let (one, other) = (key(&format!("{}1", "x".repeat(254))), key(&format!("{}2", "x".repeat(254))));
    assert_ne!(one, other);
    let (one, other) = (key(&format!("{}1", "x".repeat(300))), key(&format!("{}2", "x".repeat(300))));
    assert_ne!(one, other);
    assert_eq!(one.len(), MAX_KEY_BYTES);
}

#[test]
fn a_foreign_text_is_not_a_key() {
    for text in ["", "order 42", "order'42", "órder", "a\0b", &"x".repeat(256)] {
        assert!(Key::parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn a_previous_key_is_claimed_only_if_there_is_another_one() {
    let parse = |text: &str| Key::parse(text);
    let key = parse("order:1").unwrap();
    assert_eq!(Identity::with_previous(key.clone(), parse("order:1")), Identity::key(key.clone()));
    assert_eq!(Identity::with_previous(key.clone(), parse("")), Identity::key(key.clone()));
    let Identity::Key { previous, .. } = Identity::with_previous(key, parse("1")) else { unreachable!() };
    assert_eq!(previous, parse("1").ok());
}

/// K01: a message without its key field must not count as any other.
#[test]
fn k01_a_missing_key_field_is_refused_before_it_becomes_a_key() {
    for body in [r#"{"amount":5}"#, r#"{"amount":7}"#, r#"{"id":null}"#] {
        assert!(matches!(prepare(&by_number, body), Err(Refusal::Undecodable(_))), "{body}");
    }
    assert!(matches!(prepare(&by_name, r#"{"id":"request-123"}"#), Err(Refusal::Undecodable(_))));
}

/// K02: two messages with an empty id are not one message.
#[test]
fn k02_an_empty_id_is_refused_by_name() {
    let Err(Refusal::Key(error)) = prepare(&by_name, r#"{"tenant":"a","id":""}"#) else { panic!("it has a key") };
    assert_eq!(error, KeyError::Empty { part: "id".to_owned() });
    assert!(matches!(prepare(&by_name, r#"{"tenant":"a","id":" \t "}"#), Err(Refusal::Key(KeyError::Empty { .. }))));
}

/// K03: the same id of two tenants is two messages.
#[test]
fn k03_a_tenant_is_part_of_the_key() {
    let of = |tenant: &str| prepare(&by_name, &format!(r#"{{"tenant":"{tenant}","id":"request-123"}}"#)).unwrap();
    assert_ne!(of("A"), of("B"));
    assert_ne!(of("a"), of("A"));
}

/// K04: parts that are put together never run into each other.
#[test]
fn k04_joined_parts_are_never_ambiguous() {
    assert_ne!(key(&("a:b", "c")), key(&("a", "b:c")));
    assert_ne!(key(&("ab", "c")), key(&("a", "bc")));
    assert_ne!(key(&("a/b", "c")), key(&("a", "b/c")));
    assert!(KeyWriter::new().part("pair", &("", "x")).is_err() && KeyWriter::new().part("pair", &("x", "")).is_err());
    // A field has one type, so the number 1 and the text "1" can't both be the id of one handler's messages.
    assert_eq!(prepare(&by_number, r#"{"id":1}"#).unwrap(), "order:1");
    assert!(prepare(&by_number, r#"{"id":"1"}"#).is_err());
}

/// K08: the order of fields and the spacing don't make another message.
#[test]
fn k08_field_order_and_spacing_make_no_difference() {
    let one = prepare(&by_name, r#"{"tenant":"a","id":"1"}"#).unwrap();
    let other = prepare(&by_name, "{ \"id\": \"1\",\n \"tenant\": \"a\", \"more\": [1, 2] }").unwrap();
    assert_eq!(one, other);
}

/// K09: large integers never pass through a float.
#[test]
fn k09_neighbouring_large_integers_stay_apart() {
    let of = |id: &str| prepare(&by_number, &format!(r#"{{"id":{id}}}"#));
    assert_eq!(of("9007199254740992").unwrap(), "order:9007199254740992");
    assert_eq!(of("9007199254740993").unwrap(), "order:9007199254740993");
    assert_eq!(of("18446744073709551614").unwrap(), "order:18446744073709551614");
    assert_eq!(of("18446744073709551615").unwrap(), "order:18446744073709551615");
    for refused in ["18446744073709551616", "-0", "1e3", "1.0"] {
        assert!(matches!(of(refused), Err(Refusal::Undecodable(_))), "{refused}");
    }
}

/// K11: composed and decomposed text are two identities, on every database.
#[test]
fn k11_unicode_forms_are_different_keys() {
    assert_ne!(key(&"caf\u{e9}"), key(&"cafe\u{301}"));
    assert_ne!(key(&"\u{fb01}"), key(&"fi"));
}

/// Text that is likely to be ambiguous. Nothing but white space is no part.
fn text() -> impl Strategy<Value = String> {
    let any = prop_oneof![
        "[ab:/%#.~ -]{1,6}",
        "\\PC{1,80}",
        proptest::collection::vec(any::<char>(), 1..300).prop_map(String::from_iter),
    ];
    any.prop_filter("white space only", |text| !text.trim().is_empty())
}

fn tuples() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec(text(), 1..=4)
}

/// The parts under a template with `:` between them.
fn joined(parts: &[String]) -> Key {
    let mut key = KeyWriter::new().literal("order");
    for part in parts {
        key = key.literal(":").part("part", part).unwrap();
    }
    key.finish().unwrap()
}

proptest! {
    #[test]
    fn different_parts_make_different_keys(one in tuples(), other in tuples()) {
        prop_assert_eq!(one == other, joined(&one) == joined(&other));
    }

    #[test]
    fn moving_a_character_over_a_boundary_makes_another_key(parts in proptest::collection::vec(text(), 2..=4)) {
        let mut moved = parts.clone();
        let last = moved[0].pop();
        moved[1].insert(0, last.unwrap());
        prop_assume!(!moved[0].trim().is_empty());
        prop_assert_ne!(joined(&parts), joined(&moved));
    }

    #[test]
    fn a_key_is_short_plain_ascii_and_reads_back(parts in tuples()) {
        let key = joined(&parts);
        prop_assert!(key.as_str().len() <= MAX_KEY_BYTES);
        prop_assert!(key.as_str().bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\'' && byte != b'"'));
        prop_assert_eq!(Key::parse(key.as_str()).unwrap(), key);
    }

    #[test]
    fn numbers_are_told_apart(one in any::<(i64, u64)>(), other in any::<(i64, u64)>()) {
        prop_assert_eq!(one == other, key(&one) == key(&other));
    }

    #[test]
    fn a_tuple_and_its_members_in_a_template_are_the_same_key(first in text(), second in any::<u32>()) {
        let by_tuple = KeyWriter::new().part("pair", &(&first, second)).unwrap().finish().unwrap();
        let by_parts = KeyWriter::new().part("a", &first).unwrap().literal(":").part("b", &second).unwrap();
        prop_assert_eq!(by_tuple, by_parts.finish().unwrap());
    }
}
