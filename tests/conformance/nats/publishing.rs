//! The publisher that a URL gives.

use inboxed::Broker;
use inboxed::broker::{Outgoing, Publisher as _};

use super::proxy::Proxy;
use super::{OnNats, Plain};
use crate::adapter::Adapter as _;
use crate::handlers::{Script, body};
use crate::services::shared;
use crate::trial::{Deliveries, LONG_LEASE, eventually};

/// A repetition is dropped by its id; without one it comes to the consumer, and is its duplicate.
pub(crate) async fn repetition_is_known_by_its_id() {
    let trial = OnNats::new("repetition_is_known_by_its_id").await;
    let running = trial.run(trial.consumer(&Script::plain()));
    eventually("the stream is made", async || trial.log.opened() == 1).await;
    let publisher = Broker::connect(&shared("INBOXED_NATS_URL")).await.unwrap().publisher().await.unwrap();
    let mut message = Outgoing::new(body(1));
    message.id = Some("1".to_owned());
    for message in [&message, &message, &Outgoing::new(body(2)), &Outgoing::new(body(2))] {
        publisher.publish(&trial.source, message.clone()).await.unwrap();
    }
    trial.finish(running, 2, Deliveries::Repeated).await;
    assert_eq!(trial.log.deliveries_of(&body(1)).len(), 1, "the server dropped none");
    assert_eq!(trial.log.deliveries_of(&body(2)).len(), 2, "the server dropped what had no id");
}

/// A message that is sent on carries the id it came with among its headers; its own id is what counts.
pub(crate) async fn id_of_a_message_that_is_sent_on_is_its_own() {
    let trial = OnNats::new("id_of_a_message_that_is_sent_on").await;
    let running = trial.run(trial.consumer(&Script::plain()));
    eventually("the stream is made", async || trial.log.opened() == 1).await;
    let publisher = Broker::connect(&shared("INBOXED_NATS_URL")).await.unwrap().publisher().await.unwrap();
    let mut first = Outgoing::new(body(1));
    first.id = Some("first".to_owned());
    let mut second = Outgoing::new(body(2));
    second.headers = [("Nats-Msg-Id", "first")].into();
    second.id = Some("second".to_owned());
    for message in [first, second] {
        publisher.publish(&trial.source, message).await.unwrap();
    }
    trial.finish(running, 2, Deliveries::Once).await;
}

/// A publisher whose connection is cut says so, and makes another.
pub(crate) async fn publisher_outlives_its_connection() {
    let proxy = Proxy::to(&shared("INBOXED_NATS_URL")).await;
    let trial = OnNats::on("publisher_outlives_its_connection", Plain::start(LONG_LEASE).await).await;
    let running = trial.run(trial.consumer(&Script::plain()));
    eventually("the stream is made", async || trial.log.opened() == 1).await;
    let publisher = Broker::connect(proxy.url()).await.unwrap().publisher().await.unwrap();
    publisher.publish(&trial.source, Outgoing::new(body(1))).await.unwrap();
    proxy.cut();
    eventually("it is published over another connection", async || {
        publisher.publish(&trial.source, Outgoing::new(body(2))).await.is_ok()
    })
    .await;
    trial.finish(running, 2, Deliveries::Repeated).await;
}
