//! Ends: of the runtime under a consumer, of processes, of credentials.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use inboxed::broker::{BrokerError, Transport as _, Wanted};
use inboxed::rabbitmq::{RabbitMq, RabbitMqError};
use inboxed::{Broker, ConnectError};

use super::Plain;
use crate::adapter::Adapter as _;
use crate::services::shared;
use crate::trial::{LONG_LEASE, SERVICE, fresh_source};

/// A runtime that is dropped while a source is open, and a publisher's connection too, ends without a panic on any thread, and
/// the server hears of it.
pub(crate) async fn runtime_may_end_while_a_source_is_open() {
    let broker = Plain::start(LONG_LEASE).await;
    let source = fresh_source("runtime-end");
    broker.rabbitmq.create(&source, &Wanted::new(SERVICE, 10)).await.unwrap();
    broker.sources.lock().unwrap().insert(source.clone());
    let panics = Arc::new(AtomicUsize::new(0));
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new({
        let panics = Arc::clone(&panics);
        move |what| {
            if std::thread::current().name().is_some_and(|name| name.starts_with("lapin") || name == "ends") {
                panics.fetch_add(1, Ordering::AcqRel);
            }
            usual(what);
        }
    }));
    let (url, opened) = (broker.url.clone(), source.clone());
    let ending = std::thread::Builder::new().name("ends".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let open = runtime.block_on(async {
            let rabbitmq = RabbitMq::new(&url).unwrap();
            let publisher = rabbitmq.publisher().await.unwrap();
            (rabbitmq.open(&opened, &Wanted::new(SERVICE, 10)).await.unwrap(), publisher)
        });
        drop(runtime);
        drop(open);
    });
    tokio::task::spawn_blocking(move || ending.unwrap().join().unwrap()).await.unwrap();
    let queue = format!("{source}.{SERVICE}");
    crate::trial::eventually("nobody consumes", async || broker.consumers(&queue).await == 0).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(panics.load(Ordering::Acquire), 0);
}

/// Who isn't let in hears why, and nothing of the password.
pub(crate) async fn credentials_and_virtual_host_are_refused_by_name() {
    let url = shared("INBOXED_RABBITMQ_URL");
    let (_, host) = url.rsplit_once('@').unwrap();
    RabbitMq::connect(&format!("amqp://guest:guest@{host}/%2f")).await.unwrap();
    for (wrong, part) in
        [(format!("amqp://guest:wr0ng@{host}"), "ACCESS_REFUSED"), (format!("{url}/nowhere"), "nowhere")]
    {
        let refused = RabbitMq::connect(&wrong).await.unwrap_err();
        assert!(matches!(refused, RabbitMqError::Denied(_)), "{refused}");
        let text = format!("{refused} {refused:?}");
        assert!(text.contains(part) && !text.contains("wr0ng"), "{text}");
        let broker = Broker::connect(&wrong).await;
        assert!(matches!(broker, Err(ConnectError::RabbitMq(RabbitMqError::Denied(_)))), "{broker:?}");
        let opened = RabbitMq::new(&wrong).unwrap().open("orders", &Wanted::new(SERVICE, 1)).await;
        assert!(matches!(opened, Err(BrokerError::Refused(_))));
    }
    let shown = format!("{:?}", RabbitMq::new(&format!("amqp://me:s3cret@{host}")).unwrap());
    assert!(!shown.contains("s3cret"), "{shown}");
}

/// Over TLS, by a certificate that is trusted; and not by one that isn't.
#[cfg(feature = "rabbitmq-tls")]
pub(crate) async fn certificate_is_checked() {
    let broker = Plain::start(LONG_LEASE).await;
    let certificate = broker.node.certificate().await;
    let folder = tempfile::tempdir().unwrap();
    let roots = folder.path().join("roots.pem");
    std::fs::write(&roots, certificate).unwrap();
    let (rest, port) = broker.url.rsplit_once(':').unwrap();
    let port = port.parse::<u16>().unwrap() + 6_000;
    let rabbitmq = RabbitMq::new(&format!("{}:{port}", rest.replace("amqp:", "amqps:"))).unwrap();
    rabbitmq.clone().root_certificates(&roots).publisher().await.unwrap();
    let refused = rabbitmq.publisher().await.unwrap_err();
    assert!(matches!(refused, RabbitMqError::Tls(_)), "{refused}");
}
