//! Messages as foreign clients send them.

use std::collections::BTreeSet;
use std::time::Duration;

use inboxed::RetryPolicy;
use inboxed::broker::Settled;
use inboxed::store::Reason;
use lapin::BasicProperties;
use lapin::options::QueueDeclareOptions;
use lapin::types::{AMQPValue, FieldTable};

use super::{OnRabbit, Plain};
use crate::adapter::Adapter as _;
use crate::handlers::{Script, body};
use crate::rows;
use crate::trial::{Deliveries, LONG_LEASE, SERVICE, eventually};
use crate::watch::Answer;

fn with(fields: impl IntoIterator<Item = (&'static str, AMQPValue)>) -> BasicProperties {
    let mut table = FieldTable::default();
    for (name, value) in fields {
        table.insert(name.into(), value);
    }
    BasicProperties::default().with_headers(table)
}

/// R03: `redelivered` decides nothing. A message whose first consumer died before it did anything comes back with it, and runs;
/// one that was published twice comes without it, and has one effect.
pub(crate) async fn r03_redelivered_flag_decides_nothing() {
    let trial = OnRabbit::new("r03_redelivered_flag_decides_nothing").await;
    trial.publish(body(1)).await;
    trial.broker.take_and_die(&trial.source).await;
    trial.publish(body(2)).await;
    trial.publish(body(2)).await;
    let script = Script::plain();
    let running = trial.run(trial.consumer(&script));
    trial.finish(running, 2, Deliveries::Repeated).await;
    let flags =
        |id| trial.log.deliveries_of(&body(id)).iter().map(|seen| seen.received.redelivered).collect::<Vec<_>>();
    assert_eq!((flags(1), flags(2)), (vec![true], vec![false, false]));
    assert_eq!(script.steps().len(), 2);
}

/// R06: no properties, and headers of every odd kind, with a good body and a bad one each. Good ones have their effect; bad ones are
/// dead letters, whose headers are the documented bytes; and the consumer goes on.
pub(crate) async fn r06_odd_properties_and_headers_break_nothing() {
    let nothing = FieldTable::default();
    let odd: [(BasicProperties, Option<&[u8]>); 9] = [
        (BasicProperties::default(), None),
        (BasicProperties::default().with_headers(nothing.clone()), None),
        (with([("key", AMQPValue::Void)]), Some(b"")),
        (
            with([("key", AMQPValue::LongString("x".into())), ("x-death", AMQPValue::LongString("never".into()))]),
            Some(b"x"),
        ),
        (with([("key", AMQPValue::LongLongInt(7))]), Some(b"7")),
        (with([("key", AMQPValue::ByteArray(vec![0xff, 0].into()))]), Some(b"\xff\0")),
        (with([("key", AMQPValue::FieldTable(nothing))]), Some(b"{}")),
        (
            with([("key", AMQPValue::Boolean(true)), ("x-delivery-count", AMQPValue::LongString("many".into()))]),
            Some(b"true"),
        ),
        (
            with([("key", AMQPValue::Timestamp(u64::MAX))]).with_timestamp(u64::MAX).with_expiration("3600000".into()),
            Some(b"18446744073709551615"),
        ),
    ];
    let trial = OnRabbit::new("r06_odd_properties_and_headers").await;
    let running = trial.run(trial.consumer(&Script::plain()));
    for (id, (properties, _)) in (0..).zip(&odd) {
        trial.broker.publish_by_hand(&trial.source, properties.clone(), &body(id)).await;
        trial.broker.publish_by_hand(&trial.source, properties.clone(), format!("bad {id}").as_bytes()).await;
    }
    trial.publish(body(100)).await;
    trial.finish(running, odd.len() + 1, Deliveries::Repeated).await;
    let letters = trial.dead_letters().await;
    assert_eq!(letters.len(), odd.len());
    for (id, (_, key)) in odd.iter().enumerate() {
        let letter = letters.iter().find(|letter| letter.body == format!("bad {id}").as_bytes()).unwrap();
        assert_eq!((letter.reason, letter.headers.get_bytes("key")), (Reason::Undecodable, *key), "{id}");
    }
}

/// R07: bodies that aren't messages are dead letters at their first delivery, with their exact bytes; no body is run, and the
/// neighbours are handled.
pub(crate) async fn r07_undecodable_bodies_are_dead_letters_at_once() {
    let trial = OnRabbit::new("r07_undecodable_bodies").await;
    let bad = [&b"\xff\xfe\0"[..], b"hello", br#"{"id": 3, "te"#, b"", br#"{"id": "three"}"#];
    for (id, bad) in (0..).zip(bad) {
        trial.broker.publish_by_hand(&trial.source, BasicProperties::default(), bad).await;
        trial.broker.publish_by_hand(&trial.source, BasicProperties::default(), &body(id)).await;
    }
    let script = Script::plain();
    let running = trial.run(trial.consumer(&script).concurrency(10));
    trial.finish(running, 5, Deliveries::Once).await;
    let letters = trial.dead_letters().await;
    assert_eq!(letters.iter().map(|letter| &letter.body[..]).collect::<BTreeSet<_>>(), BTreeSet::from(bad));
    assert!(letters.iter().all(|letter| (letter.reason, letter.attempts) == (Reason::Undecodable, 0)));
    assert_eq!(script.steps().len(), 5);
}

/// R08: while a dead letter can't be written, the original isn't acknowledged.
pub(crate) async fn r08_original_stays_until_its_dead_letter_is_written() {
    rows::failures::dead_letter_refused::<Plain>().await;
}

/// Headers, properties and the count of deliveries survive a retry, whatever the delay queue adds on the way.
pub(crate) async fn retry_keeps_the_message_as_it_was() {
    let trial = OnRabbit::new("retry_keeps_the_message_as_it_was").await;
    let copies = AMQPValue::FieldArray(vec![AMQPValue::LongString("elsewhere".into())].into());
    let properties = with([("CC", copies), ("x-death", AMQPValue::LongString("of old".into()))]);
    let properties = properties.with_user_id("guest".into()).with_message_id("7".into()).with_timestamp(1_700_000_000);
    let script = Script::new(async |step| if step.attempt < 3 { Err("not yet".into()) } else { Ok(()) });
    let consumer = trial.consumer(&script).retention(Duration::from_hours(24 * 10_000));
    let running = trial.run(consumer);
    trial.broker.publish_by_hand(&trial.source, properties, &body(1)).await;
    eventually("it has its effect", async || trial.effect_count().await == 1).await;
    trial.finish(running, 1, Deliveries::Repeated).await;
    let seen = trial.log.deliveries();
    assert_eq!(seen.iter().map(|seen| seen.received.delivery_count).collect::<Vec<_>>(), [1, 2, 3]);
    for again in &seen[1..] {
        assert_eq!(
            (&again.received.headers, again.received.sent_at),
            (&seen[0].received.headers, seen[0].received.sent_at)
        );
    }
    assert_eq!(seen[0].received.headers.get("x-death"), Some("of old"));
    assert_eq!(seen[0].received.headers.get("user-id"), Some("guest"));
}

/// A retry waits at the server, and is there when that is killed meanwhile.
pub(crate) async fn delayed_retry_survives_a_killed_server() {
    let broker = Plain::start_own(LONG_LEASE).await.unwrap();
    let trial = OnRabbit::on("delayed_retry_survives_a_killed_server", broker).await;
    let script = Script::new(async |step| if step.attempt == 1 { Err("at first".into()) } else { Ok(()) });
    let delay = Duration::from_secs(20);
    let running = trial.run(trial.consumer(&script).retry(RetryPolicy::default().backoff(delay, delay)));
    trial.publish(body(1)).await;
    eventually("it waits", async || trial.log.answered(Answer::Retry, Settled::Sent) == 1).await;
    let own = trial.broker.own.as_ref().unwrap();
    own.kill().await;
    own.start_again().await;
    trial.finish(running, 1, Deliveries::Repeated).await;
    let seen = trial.log.deliveries();
    assert_eq!((seen.len(), script.steps().len()), (2, 2), "deliveries and runs");
    assert!(seen[1].at - seen[0].at >= delay / 2, "it came too soon");
}

/// A retry that no delay queue takes, since another queue has its name, waits here; the message stays where it is meanwhile.
pub(crate) async fn retry_that_cannot_be_delayed_waits_here() {
    let trial = OnRabbit::new("retry_that_cannot_be_delayed_waits_here").await;
    let taken = format!("{}.{SERVICE}.retry.125ms", trial.source);
    let declared =
        trial.broker.by_hand().await.queue_declare(taken.into(), QueueDeclareOptions::durable(), FieldTable::default());
    declared.await.unwrap();
    let script = Script::new(async |step| if step.attempt < 3 { Err("not yet".into()) } else { Ok(()) });
    let running = trial.run(trial.consumer(&script));
    trial.publish_ids(0..10).await;
    eventually("all have their effect", async || trial.effect_count().await == 10).await;
    running.stop().await;
    trial.count(10, Deliveries::Repeated).await;
}
