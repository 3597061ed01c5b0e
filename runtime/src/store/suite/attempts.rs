//! Attempts: the body's own failures, and starts without an end.

use super::*;
use crate::store::Attempts;

fn attempts(failures: u32, starts: u32) -> Attempts {
    Attempts { failures, starts }
}

pub(crate) async fn failures_are_counted_for_each_key<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    for expected in 1..=3 {
        assert_eq!(inbox.record_failure(&claim("order:1"), "no stock").await.unwrap(), expected);
    }
    let other = Claim { consumer: OTHER, ..claim("order:1") };
    assert_eq!(inbox.record_failure(&other, "no stock").await.unwrap(), 1);
    assert_eq!(inbox.attempts(&claim("order:1")).await.unwrap(), attempts(3, 0));
    assert_eq!(inbox.attempts(&claim("order:2")).await.unwrap(), attempts(0, 0));
}

pub(crate) async fn a_failure_takes_the_start_marks_back<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    inbox.mark_start(&claim("order:1")).await.unwrap();
    inbox.mark_start(&claim("order:1")).await.unwrap();
    inbox.record_failure(&claim("order:1"), "no stock").await.unwrap();
    assert_eq!(inbox.attempts(&claim("order:1")).await.unwrap(), attempts(1, 0));
}

pub(crate) async fn start_marks_count_until_an_end<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    inbox.record_failure(&claim("order:1"), "no stock").await.unwrap();
    assert_eq!(inbox.mark_start(&claim("order:1")).await.unwrap(), attempts(1, 1));
    assert_eq!(inbox.mark_start(&claim("order:1")).await.unwrap(), attempts(1, 2));
    inbox.mark_end(&claim("order:1")).await.unwrap();
    assert_eq!(inbox.attempts(&claim("order:1")).await.unwrap(), attempts(1, 0));
}

pub(crate) async fn an_end_without_failures_leaves_no_row<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    inbox.mark_start(&claim("order:1")).await.unwrap();
    inbox.mark_end(&claim("order:1")).await.unwrap();
    assert_eq!(number(inbox, "SELECT COUNT(*) FROM {attempts}").await, 0);
}

pub(crate) async fn the_claim_tells_what_earlier_attempts_left_behind<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    inbox.record_failure(&claim("order:1"), "no stock").await.unwrap();
    inbox.record_failure(&claim("order:1"), "no stock").await.unwrap();
    inbox.mark_start(&claim("order:1")).await.unwrap();
    let claims = [claim("order:2"), claim("order:1"), claim_with_previous("new:1", "order:3")];
    for group in [&claims[..2], &claims[..]] {
        let (tx, verdicts) = F::Db::begin(inbox, group, LIMITS).await.unwrap();
        F::Db::rollback(tx).await;
        assert_eq!(verdicts[..2], [FRESH, Verdict::Fresh { prior: Some(attempts(2, 1)) }]);
    }
}

pub(crate) async fn success_forgets_the_attempts_in_its_own_transaction<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    inbox.record_failure(&claim("order:1"), "no stock").await.unwrap();
    inbox.record_failure(&claim("order:2"), "no stock").await.unwrap();
    let (mut tx, _) = begin(inbox, &claim("order:1")).await;
    inbox.forget_failures(&mut tx, &claim("order:1"), None).await.unwrap();
    F::Db::commit(tx).await.unwrap();
    assert_eq!(inbox.attempts(&claim("order:1")).await.unwrap(), attempts(0, 0));
    assert_eq!(inbox.attempts(&claim("order:2")).await.unwrap(), attempts(1, 0));
}

pub(crate) async fn a_rolled_back_success_forgets_nothing<F: Fixture>() {
    let fixture = ready::<F>().await;
    let inbox = fixture.inbox();
    inbox.record_failure(&claim("order:1"), "no stock").await.unwrap();
    let (mut tx, _) = begin(inbox, &claim("order:1")).await;
    inbox.forget_failures(&mut tx, &claim("order:1"), None).await.unwrap();
    F::Db::rollback(tx).await;
    assert_eq!(inbox.attempts(&claim("order:1")).await.unwrap(), attempts(1, 0));
}

pub(crate) async fn an_error_of_any_text_can_be_recorded<F: Fixture>() {
    let fixture = ready::<F>().await;
    let long = "\u{1f418}".repeat(100_000);
    for text in ["", "a\0b", "'; DROP TABLE inbox; --", &long] {
        fixture.inbox().record_failure(&claim("order:1"), text).await.unwrap();
    }
    assert_eq!(fixture.inbox().attempts(&claim("order:1")).await.unwrap(), attempts(4, 0));
}
