//! Queues that are there already: what differs from what would be made, and what would lose or repeat messages.

use std::time::Duration;

use inboxed::broker::{BrokerError, Source as _, Transport as _, Wanted};
use inboxed::{Check, Severity};
use serde_json::{Value, json};

use super::Standard;
use crate::adapter::Adapter as _;
use crate::trial::{LONG_LEASE, SERVICE, fresh_source};

/// A finding, with a part of its text; or none.
type Expected<'a> = Option<(Check, Severity, &'a str)>;

fn wanted() -> Wanted {
    Wanted::new(SERVICE, 10)
}

/// A queue that is there and differs is an error that names both figures; it stays as it is.
pub(crate) async fn topology_conflicting() {
    let broker = Standard::start(LONG_LEASE).await;
    let transport = broker.connect("").unwrap();
    let other = fresh_source("other");
    let arn = broker.make_queue(&other, json!({})).await;
    let policy = |count: u32| json!({ "deadLetterTargetArn": arn, "maxReceiveCount": count }).to_string();
    let day = "86400";
    let wrong: [(Value, &[&str]); 4] = [
        (json!({ "VisibilityTimeout": "45" }), &["VisibilityTimeout 45", "with 60", ".visibility_timeout("]),
        (json!({ "VisibilityTimeout": "60" }), &["MessageRetentionPeriod 345600", "with 86400", ".retention("]),
        (json!({ "VisibilityTimeout": "60", "MessageRetentionPeriod": day }), &["no redrive policy", "after 1000"]),
        (
            json!({ "VisibilityTimeout": "60", "MessageRetentionPeriod": day, "RedrivePolicy": policy(3) }),
            &[&other, "after 3 deliveries", "RedrivePolicy"],
        ),
    ];
    for (attributes, texts) in wrong {
        let source = fresh_source("conflict");
        broker.make_queue(&source, attributes.clone()).await;
        let refused = match transport.create(&source, &wanted()).await {
            Err(refused @ BrokerError::Refused(_)) => refused.to_string(),
            other => panic!("not refused: {other:?}"),
        };
        for text in texts.iter().chain([&&*source]) {
            assert!(refused.contains(text), "`{text}` isn't in: {refused}");
        }
        let there = broker.server.attributes(&source).await;
        for (name, value) in attributes.as_object().unwrap() {
            assert_eq!(&there[name], value);
        }
    }
}

/// What a queue's settings would do to messages is found when it is opened.
pub(crate) async fn risks_are_found_when_a_queue_is_opened() {
    let broker = Standard::start(LONG_LEASE).await;
    let transport = broker.connect("").unwrap();
    let (dead, gone) = (fresh_source("dead"), fresh_source("gone"));
    let kept = broker.make_queue(&dead, json!({ "MessageRetentionPeriod": "1209600" })).await;
    let short = broker.make_queue(&fresh_source("short"), json!({ "MessageRetentionPeriod": "3600" })).await;
    let lost = broker.make_queue(&gone, json!({})).await;
    let redrive = |arn: &str| json!({ "deadLetterTargetArn": arn, "maxReceiveCount": 7 }).to_string();
    let cases: [(Value, Expected<'_>); 6] = [
        (json!({ "RedrivePolicy": redrive(&kept) }), None),
        (json!({}), Some((Check::DeadLetterQueue, Severity::Warning, "no redrive policy"))),
        (json!({ "RedrivePolicy": redrive(&lost) }), Some((Check::DeadLetterQueue, Severity::Warning, &gone))),
        (
            json!({ "RedrivePolicy": redrive(&short) }),
            Some((Check::DeadLetterQueue, Severity::Warning, "lost at once")),
        ),
        (
            json!({ "RedrivePolicy": redrive(&kept), "VisibilityTimeout": "0" }),
            Some((Check::Lease, Severity::Error, "VisibilityTimeout is 0")),
        ),
        (
            json!({ "RedrivePolicy": redrive(&kept), "VisibilityTimeout": "2", "MessageRetentionPeriod": "86400" }),
            Some((Check::Lease, Severity::Warning, "after 2s")),
        ),
    ];
    let mut sources = Vec::new();
    for (attributes, _) in &cases {
        let source = fresh_source("risks");
        broker.make_queue(&source, attributes.clone()).await;
        sources.push(source);
    }
    broker.delete_queue(&gone).await;
    for (source, (attributes, expected)) in sources.iter().zip(cases) {
        let opened = transport.open(source, &wanted()).await.unwrap();
        let found = opened.findings();
        match expected {
            None => assert!(found.is_empty(), "{found:?}"),
            Some((check, severity, text)) => {
                assert_eq!(found.len(), 1, "{attributes}: {found:?}");
                assert_eq!((found[0].check, found[0].severity, &found[0].subject), (check, severity, source));
                assert!(found[0].found.contains(text) && !found[0].cure.is_empty(), "{:?}", found[0]);
            }
        }
        let limit = attributes["RedrivePolicy"].is_string().then_some(7);
        assert_eq!(opened.capabilities().delivery_limit, limit);
    }
    let days = |days: u64| Some(Duration::from_hours(24 * days));
    let opened = transport.open(&sources[0], &wanted()).await.unwrap();
    assert_eq!(opened.capabilities().retention, days(4 + 14), "in the queue, among the dead letters, and once more");
}
