//! Two claims of one key at once: the second waits for the first, and never do both run.

use super::*;
use crate::error::Class;

/// Starts a second delivery of `order:1` and makes sure that it has no answer yet.
async fn waiting_delivery<Db: Store>(inbox: &Inbox<Db>) -> tokio::task::JoinHandle<Result<Verdict, Error>> {
    let inbox = inbox.clone();
    let second = tokio::spawn(async move { deliver(&inbox, &claim("order:1")).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!second.is_finished(), "the second claim was answered while the first was open");
    second
}

pub(crate) async fn p01_a_second_claim_waits_for_the_commit_and_is_a_duplicate<F: Fixture>() {
    let fixture = ready::<F>().await;
    let another = fixture.another().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    effect::<F::Db>(&mut tx, &claim("order:1")).await.unwrap();
    let second = waiting_delivery(&another).await;
    F::Db::commit(tx).await.unwrap();
    assert_eq!(second.await.unwrap().unwrap(), DUPLICATE);
    assert_eq!(effects(fixture.inbox()).await, 1);
}

pub(crate) async fn p01_a_second_claim_waits_for_the_rollback_and_is_fresh<F: Fixture>() {
    let fixture = ready::<F>().await;
    let another = fixture.another().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    effect::<F::Db>(&mut tx, &claim("order:1")).await.unwrap();
    let second = waiting_delivery(&another).await;
    F::Db::rollback(tx).await;
    assert_eq!(second.await.unwrap().unwrap(), FRESH);
    assert_eq!(effects(fixture.inbox()).await, 1);
}

pub(crate) async fn p01_a_second_claim_is_fresh_after_the_holder_was_dropped<F: Fixture>() {
    let fixture = ready::<F>().await;
    let another = fixture.another().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    effect::<F::Db>(&mut tx, &claim("order:1")).await.unwrap();
    let second = waiting_delivery(&another).await;
    drop(tx);
    assert_eq!(second.await.unwrap().unwrap(), FRESH);
    assert_eq!(effects(fixture.inbox()).await, 1);
}

pub(crate) async fn p01_a_claim_that_waits_too_long_is_unavailable<F: Fixture>() {
    let fixture = ready::<F>().await;
    let another = fixture.another().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    effect::<F::Db>(&mut tx, &claim("order:1")).await.unwrap();
    let refused = F::Db::begin(&another, &[claim("order:1")], SHORT).await.map(|(_, verdicts)| verdicts);
    assert_eq!(refused.unwrap_err().class(), Class::Unavailable);
    F::Db::commit(tx).await.unwrap();
    assert_eq!(verdict(&another, &claim("order:1")).await, DUPLICATE);
}

pub(crate) async fn eight_copies_at_once_have_one_effect<F: Fixture>() {
    let fixture = ready::<F>().await;
    let copies = (0..8).map(|_| {
        let inbox = fixture.inbox().clone();
        tokio::spawn(async move { deliver(&inbox, &claim("order:1")).await.unwrap() })
    });
    let mut fresh = 0;
    for copy in copies.collect::<Vec<_>>() {
        fresh += usize::from(copy.await.unwrap() == FRESH);
    }
    assert_eq!((fresh, effects(fixture.inbox()).await), (1, 1));
}

pub(crate) async fn copies_in_two_processes_have_one_effect_each<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inboxes = [fixture.inbox().clone(), fixture.another().await];
    let workers = (0..8).map(|worker| {
        let inbox = inboxes[worker % 2].clone();
        tokio::spawn(async move {
            for number in 0..25 {
                deliver(&inbox, &claim(&format!("order:{number}"))).await.unwrap();
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    let distinct = number(fixture.inbox(), "SELECT COUNT(DISTINCT effect_key) FROM effects").await;
    assert_eq!((effects(fixture.inbox()).await, distinct), (25, 25));
}

pub(crate) async fn a_claim_of_another_key_goes_through_after_the_wait<F: Fixture>() {
    let fixture = ready::<F>().await;
    let (tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    let inbox = fixture.inbox().clone();
    let other = tokio::spawn(async move { deliver(&inbox, &claim("order:2")).await });
    F::Db::rollback(tx).await;
    assert_eq!(other.await.unwrap().unwrap(), FRESH);
}
