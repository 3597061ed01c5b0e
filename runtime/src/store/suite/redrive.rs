//! Redriving: the table is a source, and a letter has one effect however often it is sent back.

use super::letters::{bury_bytes, bury_key, letter, only_letter, received};
use super::*;
use crate::proof::{How, bury};
use crate::store::{Attempts, DeadLetterError, LetterId, LetterIdentity, LetterState, NewLetter, Reason, Redriven};

const LEASE: Duration = Duration::from_mins(1);

async fn take<Db: Store>(inbox: &Inbox<Db>) -> Vec<Redriven> {
    inbox.take_redriven(&[CONSUMER], 10, LEASE).await.unwrap()
}

async fn redriven<F: Fixture>(text: &str) -> (F, LetterId) {
    let fixture = ready::<F>().await;
    bury_key(fixture.inbox(), text, Reason::AttemptsExhausted).await;
    let id = only_letter(fixture.inbox()).await.id;
    fixture.inbox().dead_letters().redrive(id).await.unwrap();
    (fixture, id)
}

pub(crate) async fn a_redriven_letter_is_taken_once<F: Fixture>() {
    let (fixture, id) = redriven::<F>("order:1").await;
    let taken = take(fixture.inbox()).await;
    assert_eq!((taken.len(), taken[0].id, taken[0].consumer), (1, id, CONSUMER));
    assert_eq!((&taken[0].received.body[..], &*taken[0].received.source), (&b"{}"[..], "orders"));
    assert_eq!((taken[0].received.delivery_count, taken[0].received.redelivered), (1, false));
    assert!(take(&fixture.another().await).await.is_empty());
}

pub(crate) async fn a_lease_that_ran_out_is_taken_again<F: Fixture>() {
    let (fixture, id) = redriven::<F>("order:1").await;
    assert_eq!(fixture.inbox().take_redriven(&[CONSUMER], 10, Duration::ZERO).await.unwrap().len(), 1);
    assert_eq!(take(&fixture.another().await).await[0].id, id);
}

pub(crate) async fn a_postponed_letter_waits<F: Fixture>() {
    let (fixture, id) = redriven::<F>("order:1").await;
    take(fixture.inbox()).await;
    fixture.inbox().postpone_letter(id, Duration::ZERO).await.unwrap();
    assert_eq!(take(fixture.inbox()).await.len(), 1);
    fixture.inbox().postpone_letter(id, LEASE).await.unwrap();
    assert!(take(fixture.inbox()).await.is_empty());
}

/// Handles a taken letter: claim, effect, closing the letter and commit are one transaction.
async fn handle<Db: Store>(inbox: &Inbox<Db>, text: &str, id: LetterId) -> Verdict {
    let (mut tx, verdict) = begin(inbox, &claim(text)).await;
    if matches!(verdict, Verdict::Fresh { .. }) {
        effect::<Db>(&mut tx, &claim(text)).await.unwrap();
        inbox.forget_failures(&mut tx, &claim(text), Some(id)).await.unwrap();
        Db::commit(tx).await.unwrap();
    } else {
        Db::rollback(tx).await;
        inbox.close_letter(id).await.unwrap();
    }
    verdict
}

pub(crate) async fn d02_a_redriven_message_has_a_fresh_budget_and_one_effect<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    for _ in 0..5 {
        inbox.record_failure(&claim("order:1"), "no stock").await.unwrap();
    }
    bury_key(inbox, "order:1", Reason::AttemptsExhausted).await;
    let id = only_letter(inbox).await.id;
    for round in 0..2 {
        inbox.dead_letters().redrive(id).await.unwrap();
        assert_eq!(take(inbox).await.len(), 1);
        let verdict = handle(inbox, "order:1", id).await;
        if round == 0 {
            assert_eq!(verdict, Verdict::Fresh { prior: Some(Attempts::default()) });
        } else {
            assert_eq!(verdict, DUPLICATE);
        }
        assert_eq!((effects(inbox).await, only_letter(inbox).await.state), (1, LetterState::Done));
    }
}

pub(crate) async fn a_letter_that_was_done_is_a_duplicate_when_redriven<F: Fixture>() {
    let (fixture, id) = redriven::<F>("order:1").await;
    deliver(fixture.inbox(), &claim("order:1")).await.unwrap();
    take(fixture.inbox()).await;
    let received = received(b"{}");
    let again = NewLetter {
        redriven: Some(id),
        ..letter(&received, LetterIdentity::Key(key("order:1")), Reason::AttemptsExhausted)
    };
    let how = bury(fixture.inbox(), Some(claim("order:1")), again, (), LIMITS).await.unwrap().how();
    assert_eq!(how, How::Duplicate { same_payload: true });
    assert_eq!(only_letter(fixture.inbox()).await.state, LetterState::Done);
}

pub(crate) async fn a_letter_that_fails_again_is_open_again<F: Fixture>() {
    let (fixture, id) = redriven::<F>("order:1").await;
    take(fixture.inbox()).await;
    let received = received(b"{}");
    let again =
        NewLetter { redriven: Some(id), ..letter(&received, LetterIdentity::Key(key("order:1")), Reason::Permanent) };
    bury(fixture.inbox(), Some(claim("order:1")), again, (), LIMITS).await.unwrap();
    let letter = only_letter(fixture.inbox()).await;
    assert_eq!((letter.id, letter.state, letter.reason), (id, LetterState::Open, Reason::Permanent));
    assert!(take(fixture.inbox()).await.is_empty());
}

pub(crate) async fn a_letter_that_got_a_key_meanwhile_closes_the_old_one<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    let message = received(b"{}");
    bury_bytes(inbox, &message).await;
    let old = only_letter(inbox).await.id;
    inbox.dead_letters().redrive(old).await.unwrap();
    take(inbox).await;
    let new =
        NewLetter { redriven: Some(old), ..letter(&message, LetterIdentity::Key(key("order:1")), Reason::Permanent) };
    bury(inbox, Some(claim("order:1")), new, (), LIMITS).await.unwrap();
    assert_eq!(inbox.dead_letters().get(old).await.unwrap().unwrap().state, LetterState::Done);
    assert_eq!(inbox.dead_letters().count().await.unwrap(), 1);
}

pub(crate) async fn a_letter_older_than_the_window_must_be_forced<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    bury_key(inbox, "order:1", Reason::TooOld).await;
    let id = only_letter(inbox).await.id;
    let refused = inbox.dead_letters().redrive(id).await.unwrap_err();
    assert!(matches!(refused, DeadLetterError::TooOld(_)));
    assert!(refused.to_string().contains(&format!("redrive_forced({id})")));
    assert!(take(inbox).await.is_empty());
    inbox.dead_letters().redrive_forced(id).await.unwrap();
    assert_eq!(take(inbox).await[0].id, id);
}

pub(crate) async fn only_the_consumers_own_letters_are_taken<F: Fixture>() {
    let (fixture, _) = redriven::<F>("order:1").await;
    assert!(fixture.inbox().take_redriven(&[], 10, LEASE).await.unwrap().is_empty());
    assert!(fixture.inbox().take_redriven(&[OTHER], 10, LEASE).await.unwrap().is_empty());
    assert_eq!(fixture.inbox().take_redriven(&[OTHER, CONSUMER], 10, LEASE).await.unwrap().len(), 1);
}

pub(crate) async fn eight_takers_share_the_letters<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    for number in 0..20 {
        bury_key(inbox, &format!("order:{number}"), Reason::Permanent).await;
    }
    for letter in inbox.dead_letters().list(crate::store::Filter::default()).await.unwrap() {
        inbox.dead_letters().redrive(letter.id).await.unwrap();
    }
    let takers = (0..8).map(|_| {
        let inbox = inbox.clone();
        tokio::spawn(async move { inbox.take_redriven(&[CONSUMER], 4, LEASE).await.unwrap() })
    });
    let mut taken = Vec::new();
    for taker in takers.collect::<Vec<_>>() {
        taken.extend(taker.await.unwrap().into_iter().map(|letter| letter.id));
    }
    let distinct = taken.iter().collect::<std::collections::BTreeSet<_>>().len();
    assert_eq!((taken.len(), distinct), (20, 20));
}
