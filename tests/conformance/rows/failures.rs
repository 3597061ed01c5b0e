//! Bodies that fail, and what is left of their messages.

use std::collections::BTreeMap;
use std::time::Duration;

use inboxed::RetryPolicy;
use inboxed::broker::Settled;
use inboxed::store::{LetterState, Reason};

use crate::adapter::{Adapter, Outgoing};
use crate::handlers::{Script, body};
use crate::trial::{Deliveries, Trial, eventually};
use crate::watch::Answer;

/// A retry comes no sooner than its delay and is counted by the broker; the last one ends in a dead letter, headers intact.
pub(crate) async fn retry_delay<A: Adapter>() {
    let trial = Trial::<A>::new("retry_delay").await;
    let delay = Duration::from_millis(400);
    let policy = RetryPolicy::default().attempts(3).backoff(delay, delay);
    let running = trial.run(trial.consumer(&Script::new(async |_| Err("never".into()))).retry(policy));
    let headers = vec![("Type", b"Applied".to_vec()), ("type", b"\xff".to_vec())];
    trial.publish(Outgoing { body: body(1), headers: headers.clone(), ..Outgoing::default() }).await;
    trial.finish(running, 0, Deliveries::Repeated).await;

    let deliveries = trial.log.deliveries();
    // The delay is drawn from the upper half of its bound.
    assert!(deliveries.windows(2).all(|pair| pair[1].at - pair[0].at >= delay / 2), "a retry came too soon");
    if A::held_to().delivery_count {
        let counts = deliveries.iter().map(|seen| (seen.received.delivery_count, seen.received.redelivered));
        assert_eq!(counts.collect::<Vec<_>>(), [(1, false), (2, true), (3, true)]);
    }
    let letters = trial.dead_letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].reason, letters[0].attempts), (Reason::AttemptsExhausted, 3));
    assert_eq!((&letters[0].body[..], &letters[0].headers), (&body(1)[..], &headers.into_iter().collect()));
    assert!(letters[0].error.contains("never"), "{}", letters[0].error);
}

/// A dead letter that can't be written leaves the message with the broker.
pub(crate) async fn dead_letter_refused<A: Adapter>() {
    let trial = Trial::<A>::new("dead_letter_refused").await;
    let script = Script::new(async |step| if step.id == 1 { Err(inboxed::permanent("no")) } else { Ok(()) });
    let running = trial.run(trial.consumer(&script));
    trial.publish(body(0)).await;
    trial.settled().await;
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON inbox_dead_letters BEGIN SELECT RAISE(ABORT, 'full'); END";
    sqlx::query(refuse).execute(trial.inbox.pool()).await.unwrap();

    trial.publish(body(1)).await;
    trial.publish(b"undecodable".to_vec()).await;
    eventually("both come again", async || {
        trial.log.deliveries_of(&body(1)).len() >= 3 && trial.log.deliveries_of(b"undecodable").len() >= 3
    })
    .await;
    let dead = [Settled::Confirmed, Settled::Sent].map(|settled| trial.log.answered(Answer::DeadLettered, settled));
    let forgotten = trial.log.acknowledged() - 1 + dead.into_iter().sum::<usize>();
    assert_eq!(forgotten, 0, "a message was given up without its dead letter");
    trial.publish(body(2)).await;
    eventually("others are handled meanwhile", async || trial.effect_count().await == 2).await;

    sqlx::query("DROP TRIGGER refuse").execute(trial.inbox.pool()).await.unwrap();
    trial.finish(running, 2, Deliveries::Repeated).await;
    assert_eq!(trial.dead_letters().await.len(), 2);
}

/// Of a batch, what succeeds is settled, and what fails comes back.
pub(crate) async fn partial_batch<A: Adapter>() {
    let trial = Trial::<A>::new("partial_batch").await;
    let script = Script::new(async |step| if step.id < 3 && step.attempt == 1 { Err("once".into()) } else { Ok(()) });
    trial.publish_ids(0..10).await;
    let running = trial.run(trial.consumer(&script).concurrency(10));
    trial.finish(running, 10, Deliveries::Repeated).await;
    for id in 0..10 {
        assert_eq!(trial.log.deliveries_of(&body(id)).len(), if id < 3 { 2 } else { 1 }, "deliveries of {id}");
    }
}

/// The same message twice in one fetch: one effect, both settled.
pub(crate) async fn duplicate_in_batch<A: Adapter>() {
    let trial = Trial::<A>::new("duplicate_in_batch").await;
    for _ in 0..2 {
        trial.publish_ids(0..5).await;
    }
    let running = trial.run(trial.consumer(&Script::plain()).concurrency(10));
    trial.finish(running, 5, Deliveries::Repeated).await;
    assert_eq!((trial.log.delivered(), trial.log.acknowledged()), (10, 10));
}

/// A body that panics on one of ten costs the others nothing.
pub(crate) async fn panic<A: Adapter>() {
    let trial = Trial::<A>::new("panic").await;
    let script = Script::new(async |step| if step.id == 4 { panic!("on number 4") } else { Ok(()) });
    trial.publish_ids(0..10).await;
    let policy = RetryPolicy::default().attempts(3).backoff(Duration::from_millis(20), Duration::from_millis(20));
    let running = trial.run(trial.consumer(&script).concurrency(5).prefetch(5).retry(policy));
    trial.finish(running, 9, Deliveries::Repeated).await;

    let mut attempts = BTreeMap::<u64, u32>::new();
    for step in script.steps() {
        *attempts.entry(step.id).or_default() += 1;
    }
    assert_eq!(attempts, (0..10).map(|id| (id, if id == 4 { 3 } else { 1 })).collect());
    let letters = trial.dead_letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].reason, &letters[0].body[..]), (Reason::AttemptsExhausted, &body(4)[..]));
    assert!(letters[0].error.contains("on number 4"), "{}", letters[0].error);
}

/// A dead letter that is sent back twice has one effect, comes from the table, and nothing is published.
pub(crate) async fn redrive<A: Adapter>() {
    let trial = Trial::<A>::new("redrive").await;
    trial.publish(body(1)).await;
    let failing = trial.run(trial.consumer(&Script::new(async |_| Err(inboxed::permanent("not yet")))));
    trial.settled().await;
    failing.stop().await;
    let letter = trial.dead_letters().await.remove(0);

    let running = trial.run(trial.consumer(&Script::plain()));
    for _ in 0..2 {
        trial.inbox.dead_letters().redrive(letter.id).await.unwrap();
        eventually("the letter is closed", async || {
            trial
                .inbox
                .dead_letters()
                .get(letter.id)
                .await
                .unwrap()
                .is_some_and(|letter| letter.state == LetterState::Done)
        })
        .await;
        assert_eq!(trial.effect_count().await, 1);
    }
    trial.finish(running, 1, Deliveries::Once).await;
    assert_eq!(trial.log.delivered(), 1, "a redriven letter went through the broker");
}
