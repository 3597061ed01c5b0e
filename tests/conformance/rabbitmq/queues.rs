//! Queues that are there already, aren't, or go.

use std::time::Duration;

use inboxed::broker::{BrokerError, Publisher as _, Transport as _, Wanted};
use inboxed::rabbitmq::{Binding, RabbitMq};
use inboxed::store::Reason;
use inboxed::{Check, RetryPolicy, RunError};
use lapin::options::{ExchangeDeclareOptions, QueueDeclareOptions, QueueDeleteOptions};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, ExchangeKind};
use tokio::time::sleep;

use super::{OnRabbit, Plain, Quorum, SHORT};
use crate::adapter::Adapter as _;
use crate::handlers::{Script, body};
use crate::trial::{Deliveries, Gate, LONG_LEASE, SERVICE, Trial, eventually, fresh_source};

/// Makes a quorum queue as somebody else would.
async fn make(broker: &Plain, queue: &str, arguments: &[(&'static str, AMQPValue)]) {
    let mut table = FieldTable::default();
    table.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    for (name, value) in arguments {
        table.insert((*name).into(), value.clone());
    }
    let (channel, durable) = (broker.by_hand().await, QueueDeclareOptions::durable());
    channel.queue_declare(queue.into(), durable, table).await.unwrap();
    broker.sources.lock().unwrap().insert(queue.to_owned());
}

async fn refusal(rabbitmq: &RabbitMq, source: &str) -> String {
    match rabbitmq.open(source, &Wanted::new(SERVICE, 10)).await {
        Err(refused @ BrokerError::Refused(_)) => refused.to_string(),
        Err(other) => panic!("not refused: {other}"),
        Ok(_) => panic!("not refused"),
    }
}

/// N08 (c): the queue is deleted while a consumer runs. It ends, and says what is missing and what makes it.
pub(crate) async fn n08_queue_that_is_gone_ends_the_consumer() {
    let trial = OnRabbit::new("n08_queue_that_is_gone").await;
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.publish(body(1)).await;
    trial.settled().await;
    let queue = format!("{}.{SERVICE}", trial.source);
    let channel = trial.broker.by_hand().await;
    channel.queue_delete(queue.clone().into(), QueueDeleteOptions::default()).await.unwrap();
    let Err(RunError::Source { name, error }) = running.ended().await else { panic!("it didn't end by its source") };
    assert_eq!(name, trial.source);
    let error = error.to_string();
    assert!(error.contains(&queue) && error.contains("create_topology"), "{error}");
    trial.count(1, Deliveries::Once).await;
}

/// The queue is deleted, and made again before the consumer looks: it resumes, though the server may keep its consumer and deliver
/// nothing to it.
pub(crate) async fn source_recreated() {
    let trial = OnRabbit::new("source_recreated").await;
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.publish_ids(0..3).await;
    trial.settled().await;
    let queue = format!("{}.{SERVICE}", trial.source);
    let channel = trial.broker.by_hand().await;
    channel.queue_delete(queue.into(), QueueDeleteOptions::default()).await.unwrap();
    trial.broker.rabbitmq.create(&trial.source, &Wanted::new(SERVICE, 10)).await.unwrap();
    trial.publish_ids(3..6).await;
    trial.finish(running, 6, Deliveries::Once).await;
}

/// What is there and differs from what would be made is named by the server, with both values, and stays as it is.
pub(crate) async fn topology_conflicting() {
    let broker = Plain::start(LONG_LEASE).await;
    let wanted = Wanted::new(SERVICE, 10);
    let refused = async |source: &str| match broker.rabbitmq.create(source, &wanted).await {
        Err(BrokerError::Refused(error)) => error.to_string(),
        other => panic!("not refused: {other:?}"),
    };
    let source = fresh_source("conflict");
    let queue = format!("{source}.{SERVICE}");
    make(&broker, &queue, &[("x-max-length", AMQPValue::LongInt(7))]).await;
    let text = refused(&source).await;
    for part in [&*queue, "x-max-length", "7", "Binding::queue"] {
        assert!(text.contains(part), "`{part}` isn't in: {text}");
    }
    let named = broker.rabbitmq.clone().source(source.as_str(), Binding::queue(&queue));
    assert!(named.create(&source, &wanted).await.unwrap().is_empty(), "a queue that was named is taken as it is");
    drop(named.open(&source, &wanted).await.unwrap());

    let other = fresh_source("conflict");
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let declared = broker.by_hand().await.exchange_declare(
        other.as_str().into(),
        ExchangeKind::Topic,
        durable,
        FieldTable::default(),
    );
    declared.await.unwrap();
    broker.sources.lock().unwrap().insert(other.clone());
    let text = refused(&other).await;
    for part in [&*other, "type", "fanout", "topic", "Binding::exchange"] {
        assert!(text.contains(part), "`{part}` isn't in: {text}");
    }
}

/// A queue of the source's own name is read; beside one of the service's the source is ambiguous.
pub(crate) async fn queue_of_the_sources_name_is_read() {
    let mut trial = OnRabbit::new("queue_of_the_sources_name").await;
    trial.source = fresh_source("plain-queue");
    make(&trial.broker, &trial.source, &[]).await;
    let made = trial.broker.rabbitmq.create(&trial.source, &Wanted::new(SERVICE, 10)).await.unwrap();
    assert!(made.is_empty(), "{made:?}");
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.publish_ids(0..5).await;
    eventually("they are handled", async || trial.effect_count().await == 5).await;
    running.stop().await;
    trial.count(5, Deliveries::Once).await;

    make(&trial.broker, &format!("{}.{SERVICE}", trial.source), &[]).await;
    let refused = refusal(&trial.broker.rabbitmq, &trial.source).await;
    assert!(refused.contains("Binding::queue"), "{refused}");
}

/// In order, a process is asked to end while a message runs, which then fails: the process that takes over begins with that message.
pub(crate) async fn handover_keeps_the_order() {
    let trial = Trial::<Quorum<true>>::new("handover_keeps_the_order").await;
    let gate = Gate::closed();
    let failing = Script::new({
        let gate = gate.clone();
        move |_| {
            let gate = gate.clone();
            async move {
                gate.pass().await;
                Err("at the handover".into())
            }
        }
    });
    let old = trial.run(trial.consumer(&failing));
    eventually("the first process consumes", async || trial.log.opened() == 1).await;
    let script = Script::plain();
    let new = trial.run(trial.other_consumer(&script).await);
    eventually("the second waits", async || trial.log.opened() == 2).await;
    trial.publish_ids(1..=3).await;
    eventually("the first message runs", async || failing.started(1)).await;

    old.begin_stop();
    // Long enough for a server that hands over too early.
    sleep(Duration::from_millis(500)).await;
    gate.open();
    old.stop().await;
    trial.finish(new, 3, Deliveries::Repeated).await;
    assert_eq!(script.steps().iter().map(|step| step.id).collect::<Vec<_>>(), [1, 2, 3]);
}

/// In order, a retry waits in the process; one that ends gives it back at once.
pub(crate) async fn retry_that_waits_here_keeps_no_shutdown_waiting() {
    let trial = Trial::<Quorum<true>>::new("retry_that_waits_here").await;
    let failing = Script::new(async |_| Err("not yet".into()));
    let policy = RetryPolicy::default().backoff(Duration::from_mins(1), Duration::from_mins(1));
    let running = trial.run(trial.consumer(&failing).retry(policy));
    trial.publish(body(1)).await;
    eventually("it has failed", async || failing.started(1)).await;
    sleep(Duration::from_millis(300)).await;
    let took = running.stop().await;
    assert!(took < Duration::from_secs(10), "it took {took:?}");

    let running = trial.run(trial.consumer(&Script::plain()));
    trial.finish(running, 1, Deliveries::Repeated).await;
}

/// In order, a retry waits in the process, but no longer than the server waits for it: else that would take the channel.
pub(crate) async fn retry_waits_no_longer_than_its_lease() {
    let trial = Trial::<Quorum<true>>::with_lease("retry_waits_no_longer", SHORT).await;
    let script = Script::new(async |step| if step.attempt == 1 { Err("not yet".into()) } else { Ok(()) });
    let policy = RetryPolicy::default().backoff(Duration::from_mins(10), Duration::from_mins(10));
    let running = trial.run(trial.consumer(&script).retry(policy));
    trial.publish(body(1)).await;
    trial.finish(running, 1, Deliveries::Repeated).await;
    assert_eq!(trial.log.opened(), 1, "the channel was closed");
}

/// The client never again uses the number of a channel that the server has closed; publishing goes on all the same.
pub(crate) async fn publisher_outlives_its_channels() {
    let mut trial = OnRabbit::new("publisher_outlives_its_channels").await;
    trial.source = fresh_source("channels");
    trial.broker.rabbitmq.create(&trial.source, &Wanted::new(SERVICE, 10)).await.unwrap();
    trial.broker.sources.lock().unwrap().insert(trial.source.clone());
    let separator = if trial.broker.url.contains('?') { '&' } else { '?' };
    let few = RabbitMq::new(&format!("{}{separator}channel_max=16", trial.broker.url)).unwrap();
    let publisher = few.publisher().await.unwrap();
    for id in 0..40 {
        publisher.publish_to("no-such-exchange", "", &inboxed::broker::Outgoing::new("lost")).await.unwrap_err();
        publisher.publish(&trial.source, inboxed::broker::Outgoing::new(body(id))).await.unwrap();
    }
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.finish(running, 40, Deliveries::Once).await;
}

/// A source that is bound by keys to an exchange of topics gets what they match, and nothing else.
pub(crate) async fn source_of_some_topics() {
    let mut trial = OnRabbit::new("source_of_some_topics").await;
    trial.source = fresh_source("topics");
    let events = format!("{}-events", trial.source);
    let binding = Binding::exchange(&events).key("a.#").key("b");
    let rabbitmq = trial.broker.rabbitmq.clone().source(trial.source.as_str(), binding);
    trial.broker.sources.lock().unwrap().insert(trial.source.clone());
    let made = rabbitmq.create(&trial.source, &Wanted::new(SERVICE, 10)).await.unwrap();
    assert_eq!(made.len(), 2, "{made:?}");
    let publisher = rabbitmq.publisher().await.unwrap();
    for (id, key) in (0..).zip(["a", "a.x.y", "b"]) {
        publisher.publish_to(&events, key, &inboxed::broker::Outgoing::new(body(id))).await.unwrap();
    }
    let unbound = publisher.publish_to(&events, "b.x", &inboxed::broker::Outgoing::new(body(9))).await;
    assert!(unbound.unwrap_err().to_string().contains("b.x"));
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.finish(running, 3, Deliveries::Once).await;
}

/// What nobody takes is an error that names where it should have gone, and what is published there later arrives.
pub(crate) async fn unroutable_message_is_an_error() {
    let mut trial = OnRabbit::new("unroutable_message").await;
    trial.source = fresh_source("unroutable");
    let publisher = trial.broker.rabbitmq.publisher().await.unwrap();
    let message = || inboxed::broker::Outgoing::new(body(1));
    for _ in 0..2 {
        let error = publisher.publish(&trial.source, message()).await.unwrap_err();
        assert!(matches!(error, BrokerError::Refused(_)), "{error}");
        assert!(error.to_string().contains(&trial.source), "{error}");
    }
    trial.broker.rabbitmq.create(&trial.source, &Wanted::new(SERVICE, 10)).await.unwrap();
    trial.broker.sources.lock().unwrap().insert(trial.source.clone());
    publisher.publish(&trial.source, message()).await.unwrap();
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.finish(running, 1, Deliveries::Once).await;
}

/// R04: a queue gives a message up after few deliveries, and has no dead-letter exchange. The start is refused with both
/// figures; allowed, a body that fails more often than that ends in a dead letter of ours, since a retry isn't counted there.
pub(crate) async fn r04_servers_limit_is_refused_and_buries_no_failing_message() {
    let mut trial = OnRabbit::new("r04_servers_limit").await;
    trial.source = fresh_source("r04");
    let queue = format!("{}.{SERVICE}", trial.source);
    make(&trial.broker, &queue, &[("x-delivery-limit", AMQPValue::LongInt(4))]).await;
    let policy = RetryPolicy::default().attempts(8).backoff(Duration::from_millis(5), Duration::from_millis(10));
    let failing = Script::new(async |_| Err("always".into()));
    let refused = trial.run(trial.consumer(&failing).retry(policy)).ended().await.unwrap_err().to_string();
    assert!(refused.contains("after 4 deliveries") && refused.contains("8 attempts"), "{refused}");

    let consumer = trial.consumer(&failing).retry(policy).allow(Check::DeliveryLimit).allow(Check::DeadLetterQueue);
    let running = trial.run(consumer);
    trial.broker.publish_by_hand(&trial.source, BasicProperties::default(), &body(1)).await;
    eventually("it is a dead letter", async || !trial.dead_letters().await.is_empty()).await;
    trial.finish(running, 0, Deliveries::Repeated).await;
    let letters = trial.dead_letters().await;
    assert_eq!((letters[0].reason, letters[0].attempts), (Reason::AttemptsExhausted, 8));
}

/// R04: a consumer dies with a message twenty-five times; in a queue of ours it is there for the next.
pub(crate) async fn r04_message_outlives_consumers_that_die_with_it() {
    let trial = OnRabbit::new("r04_message_outlives_consumers").await;
    trial.publish(body(1)).await;
    for _ in 0..25 {
        trial.broker.take_and_die(&trial.source).await;
    }
    let running = trial.run(trial.consumer(&Script::plain()));
    trial.finish(running, 1, Deliveries::Repeated).await;
    assert_eq!(trial.log.deliveries()[0].received.delivery_count, 26);
    assert!(trial.dead_letters().await.is_empty());
}
