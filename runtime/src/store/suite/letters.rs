//! Dead letters: written under the claim, exact to the byte.

use super::*;
use crate::message::{Headers, Received};
use crate::proof::{How, bury};
use crate::store::{DeadLetterError, Filter, LetterId, LetterIdentity, LetterState, NewLetter, Reason};

pub(crate) fn received(body: &[u8]) -> Received {
    Received::new("orders", body.to_vec())
}

pub(crate) fn letter(received: &Received, identity: LetterIdentity, reason: Reason) -> NewLetter<'_> {
    NewLetter { consumer: CONSUMER, identity, received, reason, error: "no stock", attempts: 5, redriven: None }
}

/// Buries a message that has a key, and tells what stands behind its acknowledgement.
pub(crate) async fn bury_key<Db: Store>(inbox: &Inbox<Db>, text: &str, reason: Reason) -> How {
    let received = received(b"{}");
    let letter = letter(&received, LetterIdentity::Key(key(text)), reason);
    bury(inbox, Some(claim(text)), letter, (), LIMITS).await.unwrap().how()
}

pub(crate) async fn bury_bytes<Db: Store>(inbox: &Inbox<Db>, received: &Received) {
    let letter = letter(received, LetterIdentity::of_bytes(received), Reason::Undecodable);
    bury(inbox, None, letter, (), LIMITS).await.unwrap();
}

pub(crate) async fn only_letter<Db: Store>(inbox: &Inbox<Db>) -> crate::store::DeadLetter {
    let mut letters = inbox.dead_letters().list(Filter::default()).await.unwrap();
    assert_eq!(letters.len(), 1, "{letters:?}");
    letters.remove(0)
}

pub(crate) async fn a_letter_gives_its_claim_up<F: Fixture>() {
    let fixture = ready::<F>().await;
    assert_eq!(bury_key(fixture.inbox(), "order:1", Reason::Permanent).await, How::DeadLettered(Reason::Permanent));
    assert_eq!(rows(fixture.inbox()).await, 0);
    let letter = only_letter(fixture.inbox()).await;
    assert_eq!((letter.reason, letter.state, letter.attempts), (Reason::Permanent, LetterState::Open, 5));
    assert_eq!(
        (letter.key, letter.source.as_str(), letter.error.as_str()),
        (Some(key("order:1")), "orders", "no stock")
    );
    assert_eq!(fixture.inbox().dead_letters().count().await.unwrap(), 1);
}

pub(crate) async fn a_duplicate_is_not_buried<F: Fixture>() {
    let fixture = ready::<F>().await;
    deliver(fixture.inbox(), &claim("order:1")).await.unwrap();
    let how = bury_key(fixture.inbox(), "order:1", Reason::AttemptsExhausted).await;
    assert_eq!(how, How::Duplicate { same_payload: true });
    assert_eq!(fixture.inbox().dead_letters().list(Filter::default()).await.unwrap().len(), 0);
    assert_eq!(rows(fixture.inbox()).await, 1);
}

pub(crate) async fn a_second_letter_of_a_key_renews_the_first<F: Fixture>() {
    let fixture = ready::<F>().await;
    bury_key(fixture.inbox(), "order:1", Reason::Permanent).await;
    let first = only_letter(fixture.inbox()).await;
    fixture.inbox().dead_letters().discard(first.id).await.unwrap();
    bury_key(fixture.inbox(), "order:1", Reason::AttemptsExhausted).await;
    let second = only_letter(fixture.inbox()).await;
    assert_eq!((second.id, second.reason, second.state), (first.id, Reason::AttemptsExhausted, LetterState::Open));
    assert_eq!(second.first_at, first.first_at);
}

pub(crate) async fn an_open_letter_keeps_a_row_of_attempts<F: Fixture>() {
    let fixture = ready::<F>().await;
    bury_key(fixture.inbox(), "order:1", Reason::Permanent).await;
    fixture.inbox().mark_end(&claim("order:1")).await.unwrap();
    assert!(matches!(verdict(fixture.inbox(), &claim("order:1")).await, Verdict::Fresh { prior: Some(_) }));
}

pub(crate) async fn bytes_come_back_exactly<F: Fixture>() {
    let all = (0..=u8::MAX).cycle().take(100_000).collect::<Vec<_>>();
    for body in [&b"\xff\xfe\x00"[..], b"", b"\0", b"'quoted' \\ ? {inbox} $1", &all] {
        let fixture = ready::<F>().await;
        bury_bytes(fixture.inbox(), &received(body)).await;
        assert_eq!(&only_letter(fixture.inbox()).await.body[..], body);
    }
}

pub(crate) async fn headers_come_back_exactly<F: Fixture>() {
    let fixture = ready::<F>().await;
    let mut message = received(b"{}");
    message.sent_at = Some(std::time::UNIX_EPOCH + Duration::from_micros(1_234_567_890_123_456));
    message.headers =
        Headers::from([("type", &b"OrderPlaced"[..]), ("Type", b"\xff\xfe\x00"), ("", b""), ("n\0", b"\0")]);
    bury_bytes(fixture.inbox(), &message).await;
    let letter = only_letter(fixture.inbox()).await;
    assert_eq!((letter.headers, letter.sent_at), (message.headers, message.sent_at));
}

pub(crate) async fn letters_without_a_key_are_told_apart_by_their_bytes<F: Fixture>() {
    let fixture = ready::<F>().await;
    let other_source = Received::new("payments", &b"\xff"[..]);
    for message in [&received(b"\xff"), &received(b"\xfe"), &received(b"\xff"), &other_source] {
        bury_bytes(fixture.inbox(), message).await;
    }
    assert_eq!(fixture.inbox().dead_letters().count().await.unwrap(), 3);
}

pub(crate) async fn d01_two_handlers_bury_one_message_each<F: Fixture>() {
    let fixture = ready::<F>().await;
    bury_key(fixture.inbox(), "order:1", Reason::Permanent).await;
    let received = received(b"{}");
    let other =
        NewLetter { consumer: OTHER, ..letter(&received, LetterIdentity::Key(key("order:1")), Reason::Permanent) };
    let claim = Claim { consumer: OTHER, ..claim("order:1") };
    bury(fixture.inbox(), Some(claim), other, (), LIMITS).await.unwrap();
    assert_eq!(fixture.inbox().dead_letters().count().await.unwrap(), 2);
}

pub(crate) async fn a_conflict_is_a_letter_of_its_own<F: Fixture>() {
    let fixture = ready::<F>().await;
    let received = received(b"{}");
    bury_key(fixture.inbox(), "order:1", Reason::Permanent).await;
    for payload in [-1, 1, -1] {
        let letter = letter(&received, LetterIdentity::Conflict(key("order:1"), payload), Reason::KeyConflict);
        bury(fixture.inbox(), None, letter, (), LIMITS).await.unwrap();
    }
    assert_eq!(fixture.inbox().dead_letters().count().await.unwrap(), 3);
}

pub(crate) async fn a_success_closes_the_open_letter_of_its_key<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    bury_key(inbox, "order:1", Reason::AttemptsExhausted).await;
    let (mut tx, verdict) = begin(inbox, &claim("order:1")).await;
    assert!(matches!(verdict, Verdict::Fresh { prior: Some(_) }));
    inbox.forget_failures(&mut tx, &claim("order:1"), None).await.unwrap();
    F::Db::commit(tx).await.unwrap();
    assert_eq!(only_letter(inbox).await.state, LetterState::Done);
    assert_eq!(inbox.dead_letters().count().await.unwrap(), 0);
}

pub(crate) async fn lists_are_filtered<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    let id = super::registry::register(inbox, "shop", "queue", &["orders"]).await.unwrap();
    assert_eq!(id, CONSUMER);
    bury_key(inbox, "order:1", Reason::Permanent).await;
    bury_key(inbox, "order:2", Reason::Poison).await;
    bury_bytes(inbox, &received(b"\xff")).await;
    let letters = inbox.dead_letters();
    let all = letters.list(Filter::default()).await.unwrap();
    assert!(all.windows(2).all(|pair| pair[0].id < pair[1].id));
    assert!(all.iter().all(|letter| letter.consumer == "shop/queue"));
    letters.discard(all[1].id).await.unwrap();
    let count = async |filter| letters.list(filter).await.unwrap().len();
    assert_eq!(count(Filter { reason: Some(Reason::Poison), ..Filter::default() }).await, 1);
    assert_eq!(count(Filter { state: Some(LetterState::Open), ..Filter::default() }).await, 2);
    assert_eq!(count(Filter { consumer: Some("shop/queue".to_owned()), ..Filter::default() }).await, 3);
    assert_eq!(count(Filter { consumer: Some("shop/other".to_owned()), ..Filter::default() }).await, 0);
    assert_eq!(count(Filter { limit: 2, ..Filter::default() }).await, 2);
    assert_eq!(count(Filter { older_than: Some(Duration::from_hours(1)), ..Filter::default() }).await, 0);
    execute(inbox, "UPDATE {dead_letters} SET updated_at = updated_at - 7200000000 WHERE reason = 'poison'", vec![])
        .await;
    assert_eq!(count(Filter { older_than: Some(Duration::from_hours(1)), ..Filter::default() }).await, 1);
}

pub(crate) async fn a_letter_that_is_not_there_is_named<F: Fixture>() {
    let fixture = ready::<F>().await;
    let letters = fixture.inbox().dead_letters();
    let id = LetterId::new(41);
    assert!(letters.get(id).await.unwrap().is_none());
    for refused in [letters.redrive(id).await, letters.redrive_forced(id).await, letters.discard(id).await] {
        assert!(matches!(refused, Err(DeadLetterError::Unknown(unknown)) if unknown == id));
    }
}

pub(crate) async fn discarded_letters_are_not_taken<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    bury_key(inbox, "order:1", Reason::Permanent).await;
    let id = only_letter(inbox).await.id;
    inbox.dead_letters().redrive(id).await.unwrap();
    inbox.dead_letters().discard(id).await.unwrap();
    assert!(inbox.take_redriven(&[CONSUMER], 10, Duration::ZERO).await.unwrap().is_empty());
    assert_eq!(inbox.dead_letters().get(id).await.unwrap().unwrap().state, LetterState::Discarded);
    assert_eq!(verdict(inbox, &claim("order:1")).await, FRESH);
}
