//! Messages that NATS's client ends its connection over, or dies of.

use super::Plain;
use crate::adapter::Adapter as _;
use crate::handlers::{Script, body};
use crate::trial::{Deliveries, Trial, eventually};

/// Blocks of headers that any publisher can send, and the client can't read.
const BLOCKS: [&[u8]; 5] = [
    b"NATS/1.0\r\ntrace: \xff\r\n\r\n",
    b"NATS/1.0\r\ntrace: a\rb\r\n\r\n",
    b"NATS/1.0\r\nno colon\r\n\r\n",
    b"NATS/1.0\r\na name: x\r\n\r\n",
    b"NATS/1.0 soon\r\n\r\n",
];

/// They reach their handlers, bytes intact, and so do their neighbours; it costs some connections, and then no more.
pub(crate) async fn what_the_client_cannot_read_is_handled_all_the_same() {
    let broker = Plain::start_own(Plain::SHORT_LEASE).await.unwrap();
    let trial = Trial::on("what_the_client_cannot_read_is_handled_all_the_same", broker).await;
    let server = trial.broker.server.clone();
    trial.publish_ids([0]).await;
    for (id, block) in (1..).zip(BLOCKS) {
        server.publish(&trial.source, block.to_vec(), body(2 * id)).await;
        trial.publish_ids([2 * id + 1]).await;
    }
    // A status of the message's own is none of the server's.
    server.publish(&trial.source, b"NATS/1.0 100 Idle\r\n\r\n".to_vec(), body(1)).await;
    let before = server.connections().await;
    let running = trial.run(trial.consumer(&Script::plain()));
    eventually("all are handled", async || trial.effect_count().await == 12).await;
    let then = server.connections().await;
    trial.settled().await;
    let settled = server.connections().await;
    tokio::time::sleep(Plain::SHORT_LEASE * 3).await;
    let later = server.connections().await;
    running.stop().await;

    trial.count(12, Deliveries::Repeated).await;
    let seen = &trial.log.deliveries_of(&body(2))[0].received;
    assert_eq!(seen.headers.get_bytes("trace"), Some(&b"\xff"[..]));
    assert!(trial.dead_letters().await.is_empty());
    // One for each at most, the first, and the one that counts.
    assert!(then - before <= 7, "{} connections for five messages", then - before);
    assert_eq!(later - settled, 1, "it goes on");
}
