//! Claims: fresh, duplicate, twin.

use super::*;

pub(crate) async fn first_delivery_is_fresh<F: Fixture>() {
    let fixture = ready::<F>().await;
    assert_eq!(deliver(fixture.inbox(), &claim("order:1")).await.unwrap(), FRESH);
    assert_eq!((effects(fixture.inbox()).await, rows(fixture.inbox()).await), (1, 1));
}

pub(crate) async fn redelivery_after_commit_is_a_duplicate<F: Fixture>() {
    let fixture = ready::<F>().await;
    deliver(fixture.inbox(), &claim("order:1")).await.unwrap();
    for _ in 0..3 {
        assert_eq!(deliver(fixture.inbox(), &claim("order:1")).await.unwrap(), DUPLICATE);
    }
    assert_eq!(effects(fixture.inbox()).await, 1);
}

pub(crate) async fn a_duplicate_tells_its_payload_from_another<F: Fixture>() {
    let fixture = ready::<F>().await;
    let extreme = Claim { payload: i32::MIN.into(), ..claim("order:1") };
    deliver(fixture.inbox(), &extreme).await.unwrap();
    assert_eq!(verdict(fixture.inbox(), &extreme).await, DUPLICATE);
    let other = Claim { payload: i32::MAX.into(), ..claim("order:1") };
    assert_eq!(verdict(fixture.inbox(), &other).await, Verdict::Duplicate { same_payload: false });
}

/// As keys that were taken over from a table of the user's have it.
pub(crate) async fn a_row_of_unknown_payload_is_no_key_conflict<F: Fixture>() {
    let fixture = ready::<F>().await;
    let unknown = Claim { payload: crate::store::UNKNOWN_PAYLOAD, ..claim("order:1") };
    deliver(fixture.inbox(), &unknown).await.unwrap();
    assert_eq!(verdict(fixture.inbox(), &claim("order:1")).await, DUPLICATE);
}

pub(crate) async fn rollback_frees_the_claim<F: Fixture>() {
    let fixture = ready::<F>().await;
    let (tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    F::Db::rollback(tx).await;
    assert_eq!(verdict(fixture.inbox(), &claim("order:1")).await, FRESH);
}

pub(crate) async fn closing_frees_the_claim<F: Fixture>() {
    let fixture = ready::<F>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    effect::<F::Db>(&mut tx, &claim("order:1")).await.unwrap();
    F::Db::close(tx).await;
    assert_eq!(effects(fixture.inbox()).await, 0);
    assert_eq!(verdict(fixture.inbox(), &claim("order:1")).await, FRESH);
}

pub(crate) async fn dropping_frees_the_claim<F: Fixture>() {
    let fixture = ready::<F>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    effect::<F::Db>(&mut tx, &claim("order:1")).await.unwrap();
    drop(tx);
    assert_eq!(verdict(fixture.inbox(), &claim("order:1")).await, FRESH);
    assert_eq!(effects(fixture.inbox()).await, 0);
}

pub(crate) async fn aborting_the_holders_task_frees_the_claim<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox().clone();
    let (holds, held) = tokio::sync::oneshot::channel();
    let holder = tokio::spawn(async move {
        let (mut tx, _) = begin(&inbox, &claim("order:1")).await;
        effect::<F::Db>(&mut tx, &claim("order:1")).await.unwrap();
        holds.send(()).unwrap();
        std::future::pending::<()>().await;
    });
    held.await.unwrap();
    holder.abort();
    assert_eq!(deliver(fixture.inbox(), &claim("order:1")).await.unwrap(), FRESH);
    assert_eq!(effects(fixture.inbox()).await, 1);
}

pub(crate) async fn two_consumers_may_have_one_key<F: Fixture>() {
    let fixture = ready::<F>().await;
    let other = Claim { consumer: OTHER, ..claim("order:1") };
    assert_eq!(deliver(fixture.inbox(), &claim("order:1")).await.unwrap(), FRESH);
    assert_eq!(deliver(fixture.inbox(), &other).await.unwrap(), FRESH);
}

async fn group<F: Fixture>(fixture: &F, claims: &[Claim]) -> Vec<Verdict> {
    let (tx, verdicts) = F::Db::begin(fixture.inbox(), claims, LIMITS).await.unwrap();
    F::Db::commit(tx).await.unwrap();
    verdicts
}

pub(crate) async fn a_group_is_answered_in_its_own_order<F: Fixture>() {
    let fixture = ready::<F>().await;
    deliver(fixture.inbox(), &claim("order:b")).await.unwrap();
    let claims = ["order:z", "order:b", "order:a", "order:z", "order:m"].map(claim);
    let verdicts = group(&fixture, &claims).await;
    assert_eq!(verdicts, [FRESH, DUPLICATE, FRESH, Verdict::Twin(0), FRESH]);
    assert_eq!(rows(fixture.inbox()).await, 4);
}

pub(crate) async fn a_twin_points_at_its_first<F: Fixture>() {
    let fixture = ready::<F>().await;
    let claims = ["x:0", "x:1", "x:1", "x:1", "x:0"].map(claim);
    let twin = Verdict::Twin;
    assert_eq!(group(&fixture, &claims).await, [FRESH, FRESH, twin(1), twin(1), twin(0)]);
}

pub(crate) async fn a_twin_of_a_duplicate_is_a_duplicate<F: Fixture>() {
    let fixture = ready::<F>().await;
    deliver(fixture.inbox(), &claim("order:1")).await.unwrap();
    assert_eq!(group(&fixture, &[claim("order:1"), claim("order:1")]).await, [DUPLICATE, DUPLICATE]);
}

pub(crate) async fn a_twin_with_another_payload_of_a_duplicate_is_told_apart<F: Fixture>() {
    let fixture = ready::<F>().await;
    deliver(fixture.inbox(), &claim("order:1")).await.unwrap();
    let other = Claim { payload: 8, ..claim("order:1") };
    let verdicts = group(&fixture, &[other, claim("order:1")]).await;
    assert_eq!(verdicts, [Verdict::Duplicate { same_payload: false }, DUPLICATE]);
}

pub(crate) async fn a_group_of_sixty_four_is_claimed_at_once<F: Fixture>() {
    let fixture = ready::<F>().await;
    let claims = (0..64).map(|number| claim(&format!("order:{number}"))).collect::<Vec<_>>();
    assert!(group(&fixture, &claims).await.iter().all(|verdict| *verdict == FRESH));
    assert!(group(&fixture, &claims).await.iter().all(|verdict| *verdict == DUPLICATE));
    let paired = (0..64).map(|number| claim_with_previous(&format!("new:{number}"), &format!("old:{number}")));
    assert!(group(&fixture, &paired.collect::<Vec<_>>()).await.iter().all(|verdict| *verdict == FRESH));
    assert_eq!(rows(fixture.inbox()).await, 64 + 2 * 64);
}

pub(crate) async fn a_group_without_claims_begins<F: Fixture>() {
    let fixture = ready::<F>().await;
    assert_eq!(group(&fixture, &[]).await, []);
}

pub(crate) async fn both_keys_are_held_while_there_is_a_previous_one<F: Fixture>() {
    let fixture = ready::<F>().await;
    deliver(fixture.inbox(), &claim_with_previous("new:1", "old:1")).await.unwrap();
    assert_eq!(verdict(fixture.inbox(), &claim("new:1")).await, DUPLICATE);
    assert_eq!(verdict(fixture.inbox(), &claim("old:1")).await, DUPLICATE);
}

pub(crate) async fn a_previous_key_that_was_committed_makes_a_duplicate<F: Fixture>() {
    let fixture = ready::<F>().await;
    deliver(fixture.inbox(), &claim("old:1")).await.unwrap();
    let renamed = claim_with_previous("new:1", "old:1");
    assert_eq!(deliver(fixture.inbox(), &renamed).await.unwrap(), DUPLICATE);
    let other = Claim { payload: 8, ..renamed };
    assert_eq!(verdict(fixture.inbox(), &other).await, Verdict::Duplicate { same_payload: false });
}

pub(crate) async fn a_refused_claim_leaves_no_row_of_its_other_key<F: Fixture>() {
    let fixture = ready::<F>().await;
    deliver(fixture.inbox(), &claim("old:1")).await.unwrap();
    let claims = [claim_with_previous("new:1", "old:1"), claim_with_previous("new:2", "old:2")];
    assert_eq!(group(&fixture, &claims).await, [DUPLICATE, FRESH]);
    assert_eq!(verdict(fixture.inbox(), &claim("new:1")).await, FRESH);
    assert_eq!(rows(fixture.inbox()).await, 3);
}

pub(crate) async fn a_claim_refused_by_its_previous_key_does_not_refuse_the_next<F: Fixture>() {
    let fixture = ready::<F>().await;
    deliver(fixture.inbox(), &claim("old:1")).await.unwrap();
    let claims = [claim_with_previous("new:1", "old:1"), claim_with_previous("new:1", "old:2")];
    assert_eq!(group(&fixture, &claims).await, [DUPLICATE, FRESH]);
}

pub(crate) async fn one_previous_key_makes_two_messages_twins<F: Fixture>() {
    let fixture = ready::<F>().await;
    let claims = [claim("else:1"), claim_with_previous("new:1", "old:1"), claim_with_previous("new:2", "old:1")];
    assert_eq!(group(&fixture, &claims).await, [FRESH, FRESH, Verdict::Twin(1)]);
    assert_eq!(verdict(fixture.inbox(), &claim("new:2")).await, FRESH);
}
