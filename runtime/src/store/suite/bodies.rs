//! Whatever a body does to its transaction, its effect and its claim stay together.

use sqlx::Connection as _;

use super::*;
use crate::store::CommitError;

/// An effect beside the body's first.
async fn note<Db: Store>(connection: &mut Db::Connection, note: &str) -> Result<(), sqlx::Error> {
    Db::run(connection, "INSERT INTO effects (effect_key, note) VALUES ('order:1', ?)", vec![note.into()])
        .await
        .map(drop)
}

async fn noted<Db: Store>(inbox: &Inbox<Db>, note: &str) -> bool {
    let count = inbox.read("SELECT COUNT(*) FROM effects WHERE note = ?", vec![note.into()]).await.unwrap();
    count[0].int(0).unwrap() == 1
}

pub(crate) async fn commit_keeps_claim_and_effect<F: Fixture>() {
    let fixture = ready::<F>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    effect::<F::Db>(&mut tx, &claim("order:1")).await.unwrap();
    F::Db::commit(tx).await.unwrap();
    let another = fixture.another().await;
    assert_eq!((effects(&another).await, rows(&another).await), (1, 1));
}

pub(crate) async fn rollback_undoes_claim_and_effect<F: Fixture>() {
    let fixture = ready::<F>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    effect::<F::Db>(&mut tx, &claim("order:1")).await.unwrap();
    F::Db::rollback(tx).await;
    assert_eq!((effects(fixture.inbox()).await, rows(fixture.inbox()).await), (0, 0));
}

pub(crate) async fn begin_and_commit_in_a_body_is_a_savepoint<F: Fixture>() {
    let fixture = ready::<F>().await;
    for kept in [false, true] {
        let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
        let mut part = tx.begin().await.unwrap();
        effect::<F::Db>(&mut part, &claim("order:1")).await.unwrap();
        part.commit().await.unwrap();
        if kept {
            F::Db::commit(tx).await.unwrap();
        } else {
            F::Db::rollback(tx).await;
        }
        let expected = i64::from(kept);
        assert_eq!((effects(fixture.inbox()).await, rows(fixture.inbox()).await), (expected, expected));
    }
}

pub(crate) async fn begin_dropped_in_a_body_undoes_only_its_part<F: Fixture>() {
    let fixture = ready::<F>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    note::<F::Db>(&mut tx, "before").await.unwrap();
    let mut part = tx.begin().await.unwrap();
    note::<F::Db>(&mut part, "inside").await.unwrap();
    drop(part);
    note::<F::Db>(&mut tx, "after").await.unwrap();
    F::Db::commit(tx).await.unwrap();
    assert!(noted(fixture.inbox(), "before").await && noted(fixture.inbox(), "after").await);
    assert!(!noted(fixture.inbox(), "inside").await);
    assert_eq!(verdict(fixture.inbox(), &claim("order:1")).await, DUPLICATE);
}

pub(crate) async fn begin_failing_in_a_body_undoes_only_its_part<F: Fixture>() {
    let fixture = ready::<F>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    let mut part = tx.begin().await.unwrap();
    note::<F::Db>(&mut part, "inside").await.unwrap();
    F::Db::run(&mut part, "INSERT INTO effects (effect_key, note) VALUES (NULL, 'refused')", vec![]).await.unwrap_err();
    part.rollback().await.unwrap();
    note::<F::Db>(&mut tx, "after").await.unwrap();
    F::Db::commit(tx).await.unwrap();
    assert!(noted(fixture.inbox(), "after").await && !noted(fixture.inbox(), "inside").await);
}

pub(crate) async fn begin_within_begin_in_a_body<F: Fixture>() {
    let fixture = ready::<F>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    let mut outer = tx.begin().await.unwrap();
    note::<F::Db>(&mut outer, "outer").await.unwrap();
    let mut inner = outer.begin().await.unwrap();
    note::<F::Db>(&mut inner, "inner").await.unwrap();
    inner.rollback().await.unwrap();
    outer.commit().await.unwrap();
    F::Db::commit(tx).await.unwrap();
    assert!(noted(fixture.inbox(), "outer").await && !noted(fixture.inbox(), "inner").await);
}

pub(crate) async fn a_begin_that_was_forgotten_is_refused<F: Fixture>() {
    let fixture = ready::<F>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    let mut part = tx.begin().await.unwrap();
    effect::<F::Db>(&mut part, &claim("order:1")).await.unwrap();
    std::mem::forget(part);
    assert!(matches!(F::Db::commit(tx).await, Err(CommitError::Refused(_))));
    together(&fixture).await;
}

pub(crate) async fn a_swallowed_error_never_parts_claim_and_effect<F: Fixture>() {
    let fixture = ready::<F>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    effect::<F::Db>(&mut tx, &claim("order:1")).await.unwrap();
    F::Db::run(&mut tx, "INSERT INTO effects (effect_key, note) VALUES (NULL, 'refused')", vec![]).await.unwrap_err();
    let _ = F::Db::commit(tx).await;
    together(&fixture).await;
}

/// Either claim and effect are there, or neither; and the message that comes again makes it one effect.
async fn together<F: Fixture>(fixture: &F) {
    let inbox = fixture.inbox();
    let (before, claimed) = (effects(inbox).await, rows(inbox).await);
    assert_eq!(before, claimed, "claim and effect were parted");
    deliver(inbox, &claim("order:1")).await.unwrap();
    assert_eq!((effects(inbox).await, rows(inbox).await), (1, 1));
}

/// A body that writes its effect between or after statements that end the transaction; errors are swallowed.
///
/// Either the commit notices, or the database has refused the statements themselves and left the transaction whole.
async fn body_sends<F: Fixture>(statements: &[&str]) {
    for effect_first in [true, false] {
        let fixture = ready::<F>().await;
        let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
        if effect_first {
            effect::<F::Db>(&mut tx, &claim("order:1")).await.unwrap();
        }
        let ended = sends::<F::Db>(&mut tx, statements).await;
        if !effect_first {
            let _ = effect::<F::Db>(&mut tx, &claim("order:1")).await;
        }
        match F::Db::commit(tx).await {
            Err(CommitError::Refused(_)) => {}
            Ok(()) if !ended => {
                assert_eq!((effects(fixture.inbox()).await, rows(fixture.inbox()).await), (1, 1), "{statements:?}");
            }
            committed => panic!("{statements:?} went unnoticed: {committed:?}"),
        }
        together(&fixture).await;
    }
}

/// Whether the database did any of these statements.
async fn sends<Db: Store>(connection: &mut Db::Connection, statements: &[&str]) -> bool {
    let mut done = false;
    for statement in statements {
        done |= Db::run(connection, statement, vec![]).await.is_ok();
    }
    done
}

pub(crate) async fn own_commit_never_parts_claim_and_effect<F: Fixture>() {
    body_sends::<F>(&["COMMIT"]).await;
}

pub(crate) async fn own_rollback_never_parts_claim_and_effect<F: Fixture>() {
    body_sends::<F>(&["ROLLBACK"]).await;
}

pub(crate) async fn own_rollback_and_begin_never_parts_claim_and_effect<F: Fixture>() {
    body_sends::<F>(&["ROLLBACK", "BEGIN"]).await;
}

pub(crate) async fn own_commit_and_begin_never_parts_claim_and_effect<F: Fixture>() {
    body_sends::<F>(&["COMMIT", "BEGIN"]).await;
}

pub(crate) async fn releasing_the_inboxs_savepoint_is_refused<F: Fixture>() {
    body_sends::<F>(&["RELEASE SAVEPOINT inboxed"]).await;
}

pub(crate) async fn going_back_to_the_inboxs_savepoint_keeps_the_claim<F: Fixture>() {
    let fixture = ready::<F>().await;
    let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
    note::<F::Db>(&mut tx, "undone").await.unwrap();
    F::Db::run(&mut tx, "ROLLBACK TO SAVEPOINT inboxed", vec![]).await.unwrap();
    note::<F::Db>(&mut tx, "kept").await.unwrap();
    F::Db::commit(tx).await.unwrap();
    assert!(noted(fixture.inbox(), "kept").await && !noted(fixture.inbox(), "undone").await);
    assert_eq!(verdict(fixture.inbox(), &claim("order:1")).await, DUPLICATE);
}

pub(crate) async fn check_lets_a_transaction_go_on<F: Fixture>() {
    let fixture = ready::<F>().await;
    let claims = [claim("order:1"), claim("order:2")];
    let (mut tx, _) = F::Db::begin(fixture.inbox(), &claims, LIMITS).await.unwrap();
    for claim in &claims {
        effect::<F::Db>(&mut tx, claim).await.unwrap();
        F::Db::check(&mut tx).await.unwrap();
    }
    F::Db::commit(tx).await.unwrap();
    assert_eq!((effects(fixture.inbox()).await, rows(fixture.inbox()).await), (2, 2));
}

pub(crate) async fn check_notices_a_body_that_ended_the_transaction<F: Fixture>() {
    for statements in [&["ROLLBACK"][..], &["ROLLBACK", "BEGIN"], &["COMMIT"], &["COMMIT", "BEGIN"]] {
        let fixture = ready::<F>().await;
        let claims = [claim("order:1"), claim("order:2")];
        let (mut tx, _) = F::Db::begin(fixture.inbox(), &claims, LIMITS).await.unwrap();
        let ended = sends::<F::Db>(&mut tx, statements).await;
        if F::Db::check(&mut tx).await.is_ok() {
            assert!(!ended, "{statements:?} went unnoticed");
            F::Db::commit(tx).await.unwrap();
            assert_eq!(rows(fixture.inbox()).await, 2);
        } else {
            F::Db::close(tx).await;
        }
    }
}

pub(crate) async fn a_refused_commit_leaves_the_next_message_a_true_transaction<F: Fixture>() {
    let fixture = ready::<F>().await;
    for _ in 0..10 {
        let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
        sends::<F::Db>(&mut tx, &["ROLLBACK", "RELEASE SAVEPOINT inboxed"]).await;
        F::Db::commit(tx).await.unwrap_err();
        let (mut tx, _) = begin(fixture.inbox(), &claim("order:1")).await;
        effect::<F::Db>(&mut tx, &claim("order:1")).await.unwrap();
        F::Db::rollback(tx).await;
    }
    assert_eq!((effects(fixture.inbox()).await, rows(fixture.inbox()).await), (0, 0));
}
