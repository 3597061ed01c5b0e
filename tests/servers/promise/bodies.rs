//! What a body may do with its transaction, and what it may not: claim and effect stand or fall together.

use inboxed::{Outcome, idempotent};
use serde::Deserialize;
use sqlx::{Connection as _, Executor as _};

use super::{Connection, DDL_IN_BODIES, SWALLOWED_ERRORS_KEEP_THE_REST, Shop, deliver, effect};
use crate::common::{Event, event};

/// Ends a part of its transaction as the event's id says.
#[idempotent(key = "event:{id}")]
async fn in_parts(event: Event, tx: &mut Connection) -> inboxed::Result<()> {
    effect(tx, "before").await?;
    let mut part = tx.begin().await?;
    effect(&mut part, "part").await?;
    match event.id.as_str() {
        "commit" => part.commit().await?,
        "drop" => drop(part),
        "drop at the end" => return Ok(()),
        "error in it" => {
            part.execute("INSERT INTO no_such_table VALUES (1)").await?;
            part.commit().await?;
        }
        "error after it" => {
            part.commit().await?;
            return Err("after its part was committed".into());
        }
        other => panic!("no such ending: {other}"),
    }
    Ok(effect(tx, "after").await?)
}

async fn parts_kept(ending: &str) -> Vec<String> {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("events", in_parts);
    let outcome = deliver(&app, "events", event(ending)).await;
    let effects = shop.effects().await;
    if effects.is_empty() {
        assert!(matches!(outcome, Outcome::Retry(_)), "{outcome:?}");
        assert_eq!((shop.claims().await, shop.failed(1).await), (0, 1));
    } else {
        assert_eq!(outcome, Outcome::Done);
        assert_eq!(deliver(&app, "events", event(ending)).await, Outcome::Duplicate);
        assert_eq!((shop.claims().await, shop.effects().await.len()), (1, effects.len()));
    }
    effects
}

#[tokio::test]
async fn committed_part_commits_with_the_claim() {
    assert_eq!(parts_kept("commit").await, ["after", "before", "part"]);
}

#[tokio::test]
async fn dropped_part_is_rolled_back_and_the_rest_commits() {
    assert_eq!(parts_kept("drop").await, ["after", "before"]);
    assert_eq!(parts_kept("drop at the end").await, ["before"]);
}

#[tokio::test]
async fn error_rolls_back_what_was_committed_in_parts() {
    assert_eq!(parts_kept("error in it").await, [""; 0]);
    assert_eq!(parts_kept("error after it").await, [""; 0]);
}

/// A message whose body sends these statements after its effect.
#[derive(Deserialize)]
struct Careless {
    id: u32,
    statements: Vec<String>,
    swallows: bool,
}

#[idempotent(key = "careless:{id}")]
async fn careless(message: Careless, tx: &mut Connection) -> inboxed::Result<()> {
    effect(tx, "first").await?;
    for statement in message.statements {
        let answer = tx.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(statement))).await;
        if !message.swallows {
            answer?;
        }
    }
    Ok(())
}

/// Delivers a message with these statements: everything of it is kept with its claim, or nothing of it.
async fn outcome_of(statements: &[&str], swallows: bool) -> (Outcome, Vec<String>) {
    let shop = Shop::open().await;
    let app = shop.consumer().handle("events", careless);
    let message = |id: u32, statements: &[&str]| {
        serde_json::json!({ "id": id, "statements": statements, "swallows": swallows }).to_string()
    };
    let outcome = deliver(&app, "events", message(7, statements)).await;
    let effects = shop.effects().await;
    if outcome == Outcome::Done {
        assert_eq!(shop.claims().await, 1, "{statements:?}: {effects:?}");
        assert_eq!(deliver(&app, "events", message(7, statements)).await, Outcome::Duplicate);
        assert_eq!(shop.effects().await, effects);
    } else {
        assert!(matches!(outcome, Outcome::Retry(_)), "{statements:?}: {outcome:?}");
        assert_eq!((shop.claims().await, shop.failed(1).await), (0, 1), "{statements:?}: {effects:?}");
        assert!(effects.is_empty(), "{statements:?}: {effects:?}");
    }
    // Whatever state the connection was in, the next message doesn't meet it.
    assert_eq!(deliver(&app, "events", message(8, &[])).await, Outcome::Done, "{statements:?}");
    assert_eq!(shop.effects().await.len(), effects.len() + 1);
    (outcome, effects)
}

const SECOND: &str = "INSERT INTO effects VALUES ('second')";

/// Swallowed by the body, what the server refused; then these effects are kept, or none.
async fn swallowing(statements: &[&str], kept: &[&str]) {
    let (outcome, effects) = outcome_of(statements, true).await;
    assert_eq!(outcome == Outcome::Done, SWALLOWED_ERRORS_KEEP_THE_REST, "{statements:?}: {outcome:?}");
    if outcome == Outcome::Done {
        assert_eq!(effects, kept, "{statements:?}");
    }
}

#[tokio::test]
async fn swallowed_error_of_a_statement_never_parts_claim_and_effect() {
    swallowing(&["INSERT INTO no_such_table VALUES (1)"], &["first"]).await;
    swallowing(&["INSERT INTO no_such_table VALUES (1)", SECOND], &["first", "second"]).await;
}

#[tokio::test]
async fn own_commit_never_parts_claim_and_effect() {
    swallowing(&["COMMIT"], &["first"]).await;
    swallowing(&["COMMIT; BEGIN"], &["first"]).await;
    swallowing(&["COMMIT", "BEGIN", SECOND], &["first", "second"]).await;
}

#[tokio::test]
async fn own_rollback_never_parts_claim_and_effect() {
    swallowing(&["ROLLBACK"], &["first"]).await;
    swallowing(&["ROLLBACK; BEGIN"], &["first"]).await;
    swallowing(&["ROLLBACK", "BEGIN", SECOND], &["first", "second"]).await;
    swallowing(&["ROLLBACK", SECOND], &["first", "second"]).await;
}

#[tokio::test]
async fn own_commit_or_rollback_whose_error_is_returned_keeps_nothing() {
    for statements in [&["COMMIT"][..], &["COMMIT; BEGIN"], &["ROLLBACK; BEGIN"], &["ROLLBACK", "BEGIN", SECOND]] {
        let (outcome, _) = outcome_of(statements, false).await;
        assert!(matches!(outcome, Outcome::Retry(_)), "{statements:?}: {outcome:?}");
    }
}

#[tokio::test]
async fn ddl_never_parts_claim_and_effect() {
    const DDL: &str = "CREATE TABLE made (id BIGINT)";
    for (swallows, done) in [(false, DDL_IN_BODIES), (true, true)] {
        let (outcome, effects) = outcome_of(&[DDL, SECOND], swallows).await;
        assert_eq!(outcome == Outcome::Done, done, "{outcome:?}");
        assert_eq!(effects, if done { vec!["first", "second"] } else { vec![] });
    }
}

#[tokio::test]
async fn own_savepoints_are_the_bodys_affair() {
    let statements = ["SAVEPOINT mine", SECOND, "ROLLBACK TO SAVEPOINT mine", "RELEASE SAVEPOINT mine"];
    let (outcome, effects) = outcome_of(&statements, false).await;
    assert_eq!((outcome, effects), (Outcome::Done, vec!["first".to_owned()]));
}
