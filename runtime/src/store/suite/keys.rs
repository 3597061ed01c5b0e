//! Keys of every alphabet are the bytes they are: no database folds, pads, trims or cuts them.

use super::*;
use crate::key::KeyWriter;

fn written(text: &str) -> Claim {
    let key = KeyWriter::new().literal("id:").part("id", text).unwrap().finish().unwrap();
    Claim { consumer: CONSUMER, identity: Identity::key(key), payload: 7 }
}

/// Each is fresh once, also beside all others, and a duplicate ever after.
async fn all_apart<F: Fixture>(texts: &[&str]) {
    let fixture = ready::<F>().await;
    for text in texts {
        assert_eq!(deliver(fixture.inbox(), &written(text)).await.unwrap(), FRESH, "{text:?}");
    }
    for text in texts {
        assert_eq!(deliver(fixture.inbox(), &written(text)).await.unwrap(), DUPLICATE, "{text:?}");
    }
    assert_eq!(effects(fixture.inbox()).await, i64::try_from(texts.len()).unwrap());
}

pub(crate) async fn k11_keys_are_compared_byte_for_byte<F: Fixture>() {
    all_apart::<F>(&[
        "caf\u{e9}",
        "cafe\u{301}",
        "\u{fb01}",
        "fi",
        "a",
        "a ",
        " a",
        "a\t",
        "ß",
        "ss",
        "SS",
        "%41",
        "A",
    ])
    .await;
}

pub(crate) async fn m03_letter_case_and_accents_make_two_messages<F: Fixture>() {
    all_apart::<F>(&["evt_Ab1", "evt_aB1", "evt_äb1", "evt_ab1", "evt_AB1", "\u{1f418}-1", "\u{1f418}-2"]).await;
}

pub(crate) async fn p06_a_nul_makes_another_message<F: Fixture>() {
    all_apart::<F>(&["a\0b", "ab", "a", "\0", "\0\0", "ab\0"]).await;
}

pub(crate) async fn p07_long_keys_stay_apart<F: Fixture>() {
    let alphabet = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
    let mut random = fastrand::Rng::with_seed(7);
    let mut text = |length: usize| (0..length).map(|_| char::from(alphabet[random.usize(..62)])).collect::<String>();
    let mut texts = [255, 256, 2_048, 3_000, 10_000].map(&mut text).to_vec();
    let start = text(2_999);
    texts.extend([format!("{start}x"), format!("{start}y"), "a".repeat(3_000), "a".repeat(3_001), "%".repeat(3_000)]);
    all_apart::<F>(&texts.iter().map(String::as_str).collect::<Vec<_>>()).await;
}

pub(crate) async fn odd_keys_in_one_group_are_no_twins<F: Fixture>() {
    let fixture = ready::<F>().await;
    let claims = ["a", "A", "a ", "a\0", "á", "a\u{301}", "';--", "\"", "?", "{inbox}", "$1", "%s"].map(written);
    let (tx, verdicts) = F::Db::begin(fixture.inbox(), &claims, LIMITS).await.unwrap();
    F::Db::commit(tx).await.unwrap();
    assert!(verdicts.iter().all(|verdict| *verdict == FRESH), "{verdicts:?}");
}
