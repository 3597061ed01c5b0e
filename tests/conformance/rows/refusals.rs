//! Deliveries that no body should see.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use inboxed::broker::Settled;
use inboxed::store::Reason;
use inboxed::{Check, RunError, Severity, UnknownType, on};

use crate::adapter::{Adapter, Outgoing, report};
use crate::handlers::{Script, apply, body};
use crate::trial::{Deliveries, SERVICE, Trial, eventually, service};
use crate::watch::Answer;

/// Bytes that aren't a message are dead letters at the first delivery, exactly as they came; their neighbours are handled.
pub(crate) async fn undecodable<A: Adapter>() {
    let trial = Trial::<A>::new("undecodable").await;
    let bad = [&b"\xff\xfe\0"[..], b"", br#"{"id": 3, "te"#, br#"{"id": "three", "text": []}"#];
    let running = trial.run(trial.consumer(&Script::plain()));
    for (id, bad) in (0..).zip(bad) {
        trial.publish_ids([id]).await;
        let headers = vec![("trace", b"\xe4".to_vec())];
        trial.publish(Outgoing { body: bad.to_vec(), headers, ..Outgoing::default() }).await;
    }
    // A client that can't read such a header loses its connection, and with it what its neighbours were answered.
    trial.finish(running, 4, Deliveries::Repeated).await;

    let letters = trial.dead_letters().await;
    assert_eq!(letters.iter().map(|letter| &letter.body[..]).collect::<BTreeSet<_>>(), BTreeSet::from(bad));
    for letter in letters {
        assert_eq!((letter.reason, letter.attempts), (Reason::Undecodable, 0));
        assert_eq!(letter.headers.get_bytes("trace"), Some(&b"\xe4"[..]));
        assert_eq!(letter.source, trial.source);
        assert!(!letter.error.is_empty());
    }
}

/// One message of a type that no handler takes, between two that one does.
async fn unknown_type<A: Adapter>(row: &'static str, then: UnknownType) -> Trial<A> {
    let trial = Trial::<A>::new(row).await;
    let consumer = service(SERVICE, trial.inbox.clone(), &Script::plain());
    let consumer = consumer.handle(on(trial.source.as_str()).header("type", "Known"), apply).unknown_type(then);
    let running = trial.run(consumer);
    for (id, kind) in [(1, "Known"), (2, "Unknown"), (3, "Known")] {
        let headers = vec![("type", kind.as_bytes().to_vec())];
        trial.publish(Outgoing { body: body(id), headers, ..Outgoing::default() }).await;
    }
    if then == UnknownType::GiveBack {
        eventually("it was given back", async || trial.log.deliveries_of(&body(2)).len() >= 3).await;
        eventually("its neighbours are handled", async || trial.effect_count().await == 2).await;
        running.stop().await;
    } else {
        trial.settled().await;
        running.stop().await;
        assert_eq!(trial.log.deliveries_of(&body(2)).len(), 1);
    }
    trial.count(2, Deliveries::Repeated).await;
    trial
}

/// By default it is given back, for a newer process that knows it.
pub(crate) async fn unknown_type_given_back<A: Adapter>() {
    let trial = unknown_type::<A>("unknown_type_given_back", UnknownType::GiveBack).await;
    assert!(trial.dead_letters().await.is_empty());
    let newer = trial.run(trial.consumer(&Script::plain()));
    trial.finish(newer, 3, Deliveries::Repeated).await;
}

pub(crate) async fn unknown_type_dead_lettered<A: Adapter>() {
    let trial = unknown_type::<A>("unknown_type_dead_lettered", UnknownType::DeadLetter).await;
    let letters = trial.dead_letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].reason, &letters[0].body[..]), (Reason::UnknownType, &body(2)[..]));
}

pub(crate) async fn unknown_type_skipped<A: Adapter>() {
    let trial = unknown_type::<A>("unknown_type_skipped", UnknownType::Skip).await;
    assert!(trial.dead_letters().await.is_empty());
    assert_eq!(trial.log.acknowledged(), 3);
}

/// A delivery from before the window in which a duplicate would be noticed isn't run.
pub(crate) async fn too_old<A: Adapter>() {
    if !A::DATED {
        return report("too_old", "refused: the broker dates messages itself");
    }
    let trial = Trial::<A>::new("too_old").await;
    let days = |days: u64| Some(SystemTime::now() - Duration::from_hours(24 * days));
    // The claims are kept for thirty days, and the last of them is the margin.
    for (id, sent_at) in [(1, days(28)), (2, days(29) /* and a moment */), (3, days(31)), (4, None)] {
        trial.publish(Outgoing { body: body(id), sent_at, ..Outgoing::default() }).await;
    }
    let script = Script::plain();
    let running = trial.run(trial.consumer(&script).retention(Duration::from_hours(24 * 30)));
    trial.finish(running, 2, Deliveries::Once).await;

    let letters = trial.dead_letters().await;
    let bodies = letters.iter().map(|letter| &letter.body[..]).collect::<BTreeSet<_>>();
    assert_eq!(bodies, BTreeSet::from([&body(2)[..], &body(3)[..]]));
    assert!(letters.iter().all(|letter| letter.reason == Reason::TooOld));
    assert!(!script.started(2) && !script.started(3), "a body ran beyond the window");
}

/// A publisher's clock that is ten minutes off, to either side, makes no message too old and no claim too young.
pub(crate) async fn clock_skew<A: Adapter>() {
    if !A::DATED {
        return report("clock_skew", "refused: the broker dates messages itself");
    }
    let trial = Trial::<A>::new("clock_skew").await;
    let skew = Duration::from_mins(10);
    let now = SystemTime::now();
    for (id, sent_at) in [(1, now - skew), (2, now + skew)] {
        for _ in 0..2 {
            trial.publish(Outgoing { body: body(id), sent_at: Some(sent_at), ..Outgoing::default() }).await;
        }
    }
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.settled().await;
    for registered in trial.inbox.registered().await.unwrap() {
        let pruned = trial.inbox.prune(registered.id, Duration::from_mins(5)).await.unwrap();
        assert_eq!(pruned.rows, 0, "a claim of this minute was pruned by another clock");
    }
    for (id, sent_at) in [(1, now - skew), (2, now + skew)] {
        trial.publish(Outgoing { body: body(id), sent_at: Some(sent_at), ..Outgoing::default() }).await;
    }
    trial.finish(running, 2, Deliveries::Repeated).await;
    assert!(trial.dead_letters().await.is_empty());
    assert_eq!(trial.log.answered(Answer::Ack, Settled::Lost), 0);
}

/// A retention of claims below what the broker may still deliver is found beforehand with both figures, refuses the start, and
/// is accepted by name.
pub(crate) async fn retention_below_the_horizon<A: Adapter>() {
    let trial = Trial::<A>::new("retention_below_the_horizon").await;
    let Some(kept) = A::held_to().retention else { return };
    let short = || trial.consumer(&Script::plain()).retention(kept / 2);
    let broker = trial.broker.connect("").unwrap();
    let found = short().check(&broker).await;
    let errors = found.into_iter().filter(|finding| finding.severity == Severity::Error).collect::<Vec<_>>();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].check, Check::Retention);
    for figure in [kept / 2, kept] {
        assert!(errors[0].found.contains(&format!("{figure:?}")), "{}", errors[0]);
    }
    let Err(RunError::Findings(refused)) = trial.run(short()).ended().await else { panic!("it started") };
    assert_eq!(refused, errors);

    let allowed = short().allow(Check::Retention);
    assert!(allowed.check(&broker).await.iter().all(|finding| finding.severity == Severity::Warning));
    let running = trial.run(allowed);
    trial.publish(body(1)).await;
    trial.finish(running, 1, Deliveries::Once).await;
}
