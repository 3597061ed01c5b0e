//! Settlements that the service takes in part, late, or not at all.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use inboxed::RetryPolicy;
use inboxed::broker::{Lease, Settled, Settlement, Settler as _, Source as _, Transport as _, Wanted};
use inboxed::store::Reason;
use serde_json::json;
use tokio::time::sleep;

use super::proxy::{Proxy, Request};
use super::server::{Answer, Server, url_of};
use super::{Fifo, Standard, shared_url};
use crate::adapter::{Adapter, Outgoing};
use crate::handlers::{Script, body};
use crate::trial::{Deliveries, LONG_LEASE, SERVICE, Trial, eventually};
use crate::watch::Answer as Answered;

const LEASE: Duration = Standard::SHORT_LEASE;

/// What a proxy has seen of deliveries, by their receipt handles.
#[derive(Clone, Default)]
struct Handles(Arc<Mutex<HashMap<String, Delivery>>>);

/// A message's body, and when it was handed out.
type Delivery = (Vec<u8>, Instant);

impl Handles {
    /// The server's answer to a request, of which deliveries are noted.
    fn note(&self, server: &Server, request: &Request) -> Answer {
        let answer = server.answer(request);
        if request.action == "ReceiveMessage" {
            let received = serde_json::from_slice::<serde_json::Value>(&answer.body).unwrap();
            for message in received["Messages"].as_array().into_iter().flatten() {
                let text = |name: &str| message[name].as_str().unwrap().to_owned();
                let known = (text("Body").into_bytes(), Instant::now());
                self.0.lock().unwrap().insert(text("ReceiptHandle"), known);
            }
        }
        answer
    }

    fn body(&self, handle: &str) -> Vec<u8> {
        self.0.lock().unwrap().get(handle).map(|(body, _)| body.clone()).unwrap_or_default()
    }

    /// How long ago the delivery with this handle was handed out.
    fn age(&self, handle: &str) -> Duration {
        self.0.lock().unwrap().get(handle).map(|(_, at)| at.elapsed()).unwrap_or_default()
    }

    /// The handles of a message's deliveries, in order.
    fn of(&self, body: &[u8]) -> Vec<String> {
        let known = self.0.lock().unwrap();
        let mut known = known.iter().filter(|(_, (of, _))| of == body).collect::<Vec<_>>();
        known.sort_unstable_by_key(|(_, (_, at))| *at);
        known.into_iter().map(|(handle, _)| handle.clone()).collect()
    }
}

/// S01: the body outlives the visibility timeout, and a second consumer gets the message meanwhile. Its deletion with the old
/// handle is answered like a good one, and removes nothing; the second delivery is a duplicate and goes by its own handle.
pub(crate) async fn s01_body_that_outlives_its_lease_runs_once() {
    let proxy = Proxy::with(&shared_url(), |server, request| {
        let answer = server.answer(request);
        if request.action != "DeleteMessageBatch" {
            return answer;
        }
        // As a standard queue answers an outdated handle; the emulator says that it is invalid.
        let ids = request.entries().into_iter().map(|(id, _)| json!({ "Id": id })).collect::<Vec<_>>();
        Answer::of("200 OK", &json!({ "Successful": ids, "Failed": [] }))
    })
    .await;
    let trial = Trial::on("s01_body_that_outlives_its_lease_runs_once", Standard::through(&proxy, LEASE)).await;
    let script = Script::new(|_| async {
        sleep(LEASE * 3).await;
        Ok(())
    });
    let consumers = [trial.consumer(&script), trial.other_consumer(&script).await];
    let running = consumers
        .map(|consumer| trial.run(consumer.concurrency(1).timeout(Duration::from_secs(30)).keep_leases(false)));
    eventually("both listen", async || trial.log.opened() == 2).await;
    trial.publish(body(1)).await;
    eventually("it is handled", async || trial.effect_count().await == 1).await;
    trial.settled().await;
    for running in running {
        running.stop().await;
    }
    trial.count(1, Deliveries::Repeated).await;
    assert_eq!(script.steps().len(), 1, "the body was entered again");
    assert!(trial.log.delivered() >= 2 && trial.dead_letters().await.is_empty());
    assert_eq!(trial.broker.dead(&trial.source).await, 0);
}

/// S01: ten come in one fetch and are handled one by one for much longer than a lease, which is kept for those that wait too.
pub(crate) async fn s01_messages_that_wait_here_keep_their_lease() {
    let trial = Trial::<Standard>::with_lease("s01_messages_that_wait_here_keep_their_lease", LEASE).await;
    let script = Script::new(|_| async {
        sleep(LEASE / 2).await;
        Ok(())
    });
    trial.publish_ids(0..10).await;
    let consumers = [trial.consumer(&script), trial.other_consumer(&script).await];
    let running =
        consumers.map(|consumer| trial.run(consumer.concurrency(1).prefetch(9).timeout(Duration::from_secs(30))));
    trial.settled().await;
    for running in running {
        running.stop().await;
    }
    trial.count(10, Deliveries::Once).await;
    assert!(trial.log.deliveries().iter().any(|seen| seen.batch > 1), "nothing waited");
}

/// S03: the answer to a batch names entries that failed. A fault of the sender isn't tried again, another a few times; both
/// messages come again under new handles, and are duplicates.
pub(crate) async fn s03_failed_entries_of_a_batch_come_again_and_have_one_effect() {
    let handles = Handles::default();
    let known = handles.clone();
    let proxy = Proxy::with(&shared_url(), move |server, request| match &*request.action {
        "DeleteMessageBatch" => server.answer_but(request, |handle| {
            let of = known.body(handle);
            let first = known.of(&of).first().is_some_and(|first| first == handle);
            match (first, of == body(3), of == body(7)) {
                (true, true, _) => Some((true, "InvalidParameterValue")),
                (true, _, true) => Some((false, "InternalError")),
                _ => None,
            }
        }),
        _ => known.note(server, request),
    })
    .await;
    let broker = Standard::through(&proxy, LEASE);
    let trial = Trial::on("s03_failed_entries_of_a_batch_come_again_and_have_one_effect", broker).await;
    let script = Script::plain();
    trial.publish_ids(0..10).await;
    let running = trial.run(trial.consumer(&script).concurrency(10));
    trial.finish(running, 10, Deliveries::Repeated).await;
    assert_eq!((script.steps().len(), trial.log.delivered()), (10, 12), "runs and deliveries");
    let (lost, confirmed) =
        (trial.log.answered(Answered::Ack, Settled::Lost), trial.log.answered(Answered::Ack, Settled::Confirmed));
    assert_eq!((lost, confirmed), (2, 10));
    for (id, times) in [(3, [1, 1]), (7, [3, 1])] {
        let deliveries = handles.of(&body(id));
        let asked = deliveries.iter().map(|handle| proxy.times("DeleteMessageBatch", handle)).collect::<Vec<_>>();
        assert_eq!(asked, times, "deletions of {id}, by delivery");
    }
}

/// S05: a duplicate is deleted like any other message, however often that fails; the message never reaches the dead-letter queue.
pub(crate) async fn s05_duplicate_is_deleted_until_that_works() {
    let handles = Handles::default();
    let known = handles.clone();
    let proxy = Proxy::with(&shared_url(), move |server, request| match &*request.action {
        "DeleteMessageBatch" => server.answer_but(request, |handle| {
            let deliveries = known.of(&known.body(handle));
            deliveries.iter().take(3).any(|first| first == handle).then_some((false, "InternalError"))
        }),
        _ => known.note(server, request),
    })
    .await;
    let trial = Trial::on("s05_duplicate_is_deleted_until_that_works", Standard::through(&proxy, LEASE)).await;
    let script = Script::plain();
    let running = trial.run(trial.consumer(&script));
    trial.publish(body(1)).await;
    trial.finish(running, 1, Deliveries::Repeated).await;
    assert_eq!((script.steps().len(), trial.log.delivered()), (1, 4), "runs and deliveries");
    assert_eq!(trial.log.answered(Answered::Ack, Settled::Lost), 3);
    assert_eq!(trial.broker.dead(&trial.source).await, 0);
}

/// S07: of ten, one always fails. The others are acknowledged in the first round, each by itself; that one comes alone, until
/// it is a dead letter.
pub(crate) async fn s07_one_that_fails_comes_again_alone() {
    let trial = Trial::<Standard>::new("s07_one_that_fails_comes_again_alone").await;
    let script = Script::new(async |step| if step.id == 4 { Err("always".into()) } else { Ok(()) });
    trial.publish_ids(0..10).await;
    let policy = RetryPolicy::default().attempts(5).backoff(Duration::from_millis(20), Duration::from_millis(20));
    let running = trial.run(trial.consumer(&script).concurrency(10).retry(policy));
    trial.finish(running, 9, Deliveries::Repeated).await;
    for id in 0..10 {
        assert_eq!(trial.log.deliveries_of(&body(id)).len(), if id == 4 { 5 } else { 1 }, "deliveries of {id}");
    }
    assert_eq!(trial.log.acknowledged(), 9);
    let letters = trial.dead_letters().await;
    assert_eq!(letters.len(), 1);
    assert_eq!(
        (letters[0].reason, letters[0].attempts, &letters[0].body[..]),
        (Reason::AttemptsExhausted, 5, &body(4)[..])
    );
}

/// S12: the queue has moved a message that is committed, and one that isn't, to its dead-letter queue. Sent back from there,
/// the first is a duplicate, and the second runs; sent back again, both are duplicates.
pub(crate) async fn s12_what_the_dead_letter_queue_gives_back_has_one_effect() {
    let (handles, failing) = (Handles::default(), Arc::new(AtomicBool::new(true)));
    let (known, fails) = (handles.clone(), Arc::clone(&failing));
    let proxy = Proxy::with(&shared_url(), move |server, request| match &*request.action {
        "DeleteMessageBatch" => {
            server.answer_but(request, |_| fails.load(Ordering::Acquire).then_some((false, "InternalError")))
        }
        _ => known.note(server, request),
    })
    .await;
    let trial =
        Trial::on("s12_what_the_dead_letter_queue_gives_back_has_one_effect", Standard::through(&proxy, LEASE)).await;
    let uncommitted = Arc::clone(&failing);
    let script = Script::new(move |step| {
        let fails = step.id == 2 && uncommitted.load(Ordering::Acquire);
        async move { if fails { Err("not yet".into()) } else { Ok(()) } }
    });
    let policy = RetryPolicy::default().attempts(100).backoff(Duration::from_millis(20), Duration::from_millis(20));
    let running = trial.run(trial.consumer(&script).retry(policy));
    eventually("it listens", async || trial.log.opened() == 1).await;
    trial.broker.give_up_after(&trial.source, 3).await;
    trial.publish_ids(1..=2).await;
    eventually("the queue has given both up", async || trial.broker.dead(&trial.source).await == 2).await;
    assert_eq!(trial.effect_count().await, 1);

    failing.store(false, Ordering::Release);
    for round in 1..=2 {
        assert_eq!(trial.broker.send_back(&trial.source).await, 2);
        trial.settled().await;
        eventually("both are committed", async || trial.effect_count().await == 2).await;
        if round == 1 {
            for id in 1..=2 {
                trial.broker.publish_dead(&trial.source, &body(id)).await;
            }
        }
    }
    trial.finish(running, 2, Deliveries::Repeated).await;
    assert_eq!(script.steps().iter().filter(|step| step.id == 1).count(), 1, "what was committed ran again");
    assert!(trial.dead_letters().await.is_empty());
}

/// The service refuses to hide a message whose lease is over: the lease is lost, and the handler can see that.
pub(crate) async fn extension_that_comes_too_late_is_a_lost_lease() {
    let proxy = Proxy::with(&shared_url(), |server, request| match &*request.action {
        "ChangeMessageVisibilityBatch" => server.answer_but(request, |_| Some((true, "MessageNotInflight"))),
        _ => server.answer(request),
    })
    .await;
    let trial = Trial::on("extension_that_comes_too_late_is_a_lost_lease", Standard::through(&proxy, LONG_LEASE)).await;
    trial.publish(body(1)).await;
    let transport = trial.broker.connect("").unwrap();
    let mut source = transport.open(&trial.source, &Wanted::new(SERVICE, 1)).await.unwrap();
    let token = source.receive(1).await.unwrap().remove(0).token;
    assert_eq!(source.settler().extend(&[&token]).await, [Lease::Lost]);
    let retried = source.settler().settle(vec![Settlement::Retry(token, Duration::from_secs(1))]).await;
    assert_eq!(retried, [Settled::Lost]);
}

/// A FIFO queue refuses the handle of a delivery whose lease is over, as the emulator doesn't: the message comes again, and
/// has its one effect.
pub(crate) async fn expired_handle_of_a_fifo_queue_is_a_lost_acknowledgement() {
    let handles = Handles::default();
    let known = handles.clone();
    let proxy = Proxy::with(&shared_url(), move |server, request| match &*request.action {
        "DeleteMessageBatch" => {
            server.answer_but(request, |handle| (known.age(handle) > LEASE).then_some((true, "InvalidParameterValue")))
        }
        _ => known.note(server, request),
    })
    .await;
    let trial =
        Trial::on("expired_handle_of_a_fifo_queue_is_a_lost_acknowledgement", Fifo::through(&proxy, LEASE)).await;
    let script = Script::new(|step| async move {
        if step.id == 1 {
            sleep(LEASE.mul_f64(1.5)).await;
        }
        Ok(())
    });
    let running = trial.run(trial.consumer(&script).timeout(Duration::from_secs(30)).keep_leases(false));
    for id in 1..=3 {
        trial.publish(Outgoing { body: body(id), ordering_key: Some("a".to_owned()), ..Outgoing::default() }).await;
    }
    trial.finish(running, 3, Deliveries::Repeated).await;
    assert!(trial.log.answered(Answered::Ack, Settled::Lost) >= 1, "no acknowledgement was late");
    assert_eq!(script.steps().iter().map(|step| step.id).collect::<Vec<_>>(), [1, 2, 3], "runs");
}

/// What is said about many deliveries goes ten to a request, each under an id of its own.
pub(crate) async fn many_settlements_go_ten_to_a_request() {
    let proxy = Proxy::to(&shared_url()).await;
    let trial = Trial::on("many_settlements_go_ten_to_a_request", Standard::through(&proxy, LONG_LEASE)).await;
    trial.publish_ids(0..25).await;
    let transport = trial.broker.connect("").unwrap();
    let mut source = transport.open(&trial.source, &Wanted::new(SERVICE, 25)).await.unwrap();
    let mut tokens = Vec::new();
    while tokens.len() < 25 {
        tokens.extend(source.receive(25 - tokens.len()).await.unwrap().into_iter().map(|incoming| incoming.token));
    }
    let settled = source.settler().settle(tokens.into_iter().map(Settlement::Release).collect()).await;
    assert_eq!(settled, [Settled::Confirmed; 25]);
    let requests = proxy.requests("ChangeMessageVisibilityBatch");
    assert!(requests.len() <= 5, "{} requests for 25 settlements", requests.len());
    for request in requests {
        let mut ids = request.entries().into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert!(ids.len() == count && count <= 10, "{request:?}");
        assert!(
            request.body["QueueUrl"].as_str().unwrap().ends_with(url_of(&trial.source).rsplit('/').next().unwrap())
        );
    }
}
