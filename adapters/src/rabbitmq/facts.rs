//! What a queue's settings mean: what the source can do, and what is amiss.

use std::time::Duration;

use inboxed_runtime::broker::Capabilities;
use inboxed_runtime::{Check, Finding};

use super::arguments::Arguments;
use super::error::RabbitMqError;
use super::options::Options;

/// A limit of deliveries above this is none.
const ENDLESS: i64 = 1_000_000;

/// What is known of a queue.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) capabilities: Capabilities,
    pub(super) findings: Vec<Finding>,
    pub(super) lease: Duration,
    pub(super) in_order: bool,
}

impl Facts {
    /// From a queue's settings, or from why they can't be read.
    pub(super) fn of(queue: &str, read: Result<Arguments, String>, options: &Options) -> Result<Self, RabbitMqError> {
        let mut capabilities = Capabilities::default();
        capabilities.ordered = options.one_at_a_time;
        capabilities.groups = true;
        capabilities.persistent = true;
        capabilities.fixed_lease = true;
        capabilities.delivery_count = true;
        capabilities.delayed_retry = true;
        capabilities.batch_ack = true;
        let declared = options.delivery_limit.map(i64::from);
        capabilities.delivery_limit = reached(declared);
        let mut lease = options.consumer_timeout;
        let mut findings = Vec::new();
        let subject = || format!("queue `{queue}`");
        match read {
            Err(why) => findings.push(Finding::warning(
                Check::Settings,
                subject(),
                format!("its settings can't be read: {why}"),
                "give the user the right to configure it, or see by hand that it is durable and gives no message up",
            )),
            Ok(arguments) => {
                let kind = arguments.text("x-queue-type").unwrap_or_else(|| "classic".to_owned());
                if kind == "stream" {
                    return Err(RabbitMqError::Refused(format!(
                        "queue `{queue}` is a stream, from which acknowledged messages don't go: bind a quorum queue to what \
                         fills it"
                    )));
                }
                let quorum = kind == "quorum";
                let single = arguments.is_set("x-single-active-consumer");
                // What is given back goes to the end of a quorum queue that has no limit.
                let limit = declared.or_else(|| arguments.number("x-delivery-limit").filter(|_| quorum));
                let in_place = !quorum || limit.is_some_and(|limit| limit >= 0);
                capabilities.ordered &= single && in_place;
                capabilities.persistent = arguments.durable;
                capabilities.delivery_count = quorum;
                capabilities.retention = arguments.milliseconds("x-message-ttl");
                lease = arguments.milliseconds("x-consumer-timeout").unwrap_or(lease);
                capabilities.delivery_limit = reached(limit);
                examine(&subject(), &arguments, &capabilities, options, &mut findings);
            }
        }
        capabilities.lease = Some(lease);
        Ok(Self { capabilities, findings, lease, in_order: options.one_at_a_time })
    }
}

/// A limit that a message may ever reach.
fn reached(limit: Option<i64>) -> Option<u32> {
    limit.filter(|limit| *limit < ENDLESS).and_then(|limit| u32::try_from(limit).ok())
}

/// Finds what would lose messages, or repeat them, beside what the capabilities tell.
fn examine(
    subject: &str,
    arguments: &Arguments,
    capabilities: &Capabilities,
    options: &Options,
    findings: &mut Vec<Finding>,
) {
    let buried = arguments.has("x-dead-letter-exchange");
    if !arguments.durable {
        findings.push(Finding::warning(
            Check::Durability,
            subject,
            "it isn't durable, and its messages are gone when the server restarts",
            "make a durable quorum queue, by `create_topology` or by hand",
        ));
    }
    if let (Some(limit), false) = (capabilities.delivery_limit, buried) {
        // What a policy sets beside the declared limit can't be seen.
        let declared = options.delivery_limit.is_some();
        let finding: fn(_, String, String, String) -> _ = if declared { Finding::warning } else { Finding::error };
        findings.push(finding(
            Check::DeadLetterQueue,
            subject.to_owned(),
            format!(
                "a message is given up after {limit} deliveries, restarts included, and no dead-letter exchange is seen to \
                 take it"
            ),
            "raise the limit to a million or more, or give the queue, or the policy, a dead-letter exchange".to_owned(),
        ));
    }
    let quorum = arguments.text("x-queue-type").is_some_and(|kind| kind == "quorum");
    if quorum && options.delivery_limit.is_none() && !arguments.has("x-delivery-limit") {
        findings.push(Finding::warning(
            Check::DeliveryLimit,
            subject,
            "it has no delivery limit of its own, and from RabbitMQ 4.0 on the server then gives a message up after 20 \
             deliveries, restarts included",
            "set `delivery-limit` by a policy, and declare it by `.delivery_limit(…)`; a queue that `create_topology` makes \
             has one that is never reached",
        ));
    }
    if let (Some(kept), false) = (capabilities.retention, buried) {
        findings.push(Finding::warning(
            Check::Retention,
            subject,
            format!("a message that isn't handled within {kept:?} (x-message-ttl) is dropped"),
            "raise it above your longest outage, or give the queue a dead-letter exchange",
        ));
    }
    let rejects = arguments.text("x-overflow").is_some_and(|overflow| overflow.starts_with("reject-publish"));
    if (arguments.has("x-max-length") || arguments.has("x-max-length-bytes")) && !rejects {
        findings.push(Finding::warning(
            Check::Retention,
            subject,
            "its length is limited, and the oldest messages are dropped when it is full",
            "set x-overflow to `reject-publish`, so that publishers hear of it",
        ));
    }
    if let Some(unused) = arguments.milliseconds("x-expires") {
        findings.push(Finding::warning(
            Check::Settings,
            subject,
            format!("it is deleted with its messages when nobody consumes for {unused:?} (x-expires)"),
            "make it without that",
        ));
    }
    if options.one_at_a_time && !capabilities.ordered {
        findings.push(Finding::warning(
            Check::Settings,
            subject,
            "it doesn't keep its order: it has more than one active consumer, so that messages of several processes overtake each \
             other, or it is a quorum queue without a delivery limit, at whose end the server puts what is given back",
            "make it with x-single-active-consumer and x-delivery-limit, as `create_topology` does under `.one_at_a_time()`",
        ));
    }
}

#[cfg(test)]
mod tests {
    use inboxed_runtime::Severity;
    use lapin::types::{AMQPValue, FieldTable};

    use super::*;

    fn facts(fields: &[(&'static str, AMQPValue)], options: &Options) -> Facts {
        let mut table = FieldTable::default();
        table.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
        for (name, value) in fields {
            table.insert((*name).into(), value.clone());
        }
        Facts::of("in", Ok(Arguments::of_ours(table)), options).unwrap()
    }

    fn found(facts: &Facts) -> Vec<(Check, Severity)> {
        facts.findings.iter().map(|finding| (finding.check, finding.severity)).collect()
    }

    #[test]
    fn settings_become_capabilities_and_findings() {
        let plain = Options::default();
        let endless = ("x-delivery-limit", AMQPValue::LongLongInt(i64::from(i32::MAX)));
        let ours = facts(std::slice::from_ref(&endless), &plain);
        assert!(ours.findings.is_empty() && ours.capabilities.delivery_limit.is_none());

        let limit = ("x-delivery-limit", AMQPValue::LongLongInt(5));
        let short = facts(std::slice::from_ref(&limit), &plain);
        assert_eq!(short.capabilities.delivery_limit, Some(5));
        assert_eq!(found(&short), [(Check::DeadLetterQueue, Severity::Error)]);
        let taken = ("x-dead-letter-exchange", AMQPValue::LongString("dead".into()));
        assert!(facts(&[limit, taken], &plain).findings.is_empty());
        assert_eq!(found(&facts(&[], &plain)), [(Check::DeliveryLimit, Severity::Warning)]);
        let taken = ("x-dead-letter-exchange", AMQPValue::LongString("dead".into()));
        assert_eq!(found(&facts(&[taken], &plain)), [(Check::DeliveryLimit, Severity::Warning)]);

        let by_policy = |limit| facts(&[], &Options { delivery_limit: Some(limit), ..Options::default() });
        assert_eq!(by_policy(50).capabilities.delivery_limit, Some(50));
        assert_eq!(found(&by_policy(50)), [(Check::DeadLetterQueue, Severity::Warning)]);
        assert!(by_policy(2_000_000).findings.is_empty() && by_policy(2_000_000).capabilities.delivery_limit.is_none());

        let hour = |name| (name, AMQPValue::LongLongInt(3_600_000));
        let full = facts(
            &[endless, hour("x-message-ttl"), hour("x-max-length"), hour("x-expires"), hour("x-consumer-timeout")],
            &plain,
        );
        assert_eq!(full.capabilities.retention, Some(Duration::from_hours(1)));
        assert_eq!(full.capabilities.lease, Some(Duration::from_hours(1)));
        let warned = [Check::Retention, Check::Retention, Check::Settings].map(|check| (check, Severity::Warning));
        assert_eq!(found(&full), warned);
    }

    #[test]
    fn order_needs_a_single_active_consumer() {
        let options = Options { one_at_a_time: true, delivery_limit: Some(2_000_000), ..Options::default() };
        let single = ("x-single-active-consumer", AMQPValue::Boolean(true));
        assert!(facts(std::slice::from_ref(&single), &options).capabilities.ordered);
        assert!(!facts(&[], &options).capabilities.ordered);

        let undeclared = Options { delivery_limit: None, ..options };
        let limit = |limit| facts(&[single.clone(), ("x-delivery-limit", AMQPValue::LongLongInt(limit))], &undeclared);
        assert!(limit(i64::from(i32::MAX)).capabilities.ordered);
        for unlimited in [limit(-1), facts(std::slice::from_ref(&single), &undeclared)] {
            assert!(!unlimited.capabilities.ordered, "what is given back goes to its end");
            assert!(found(&unlimited).contains(&(Check::Settings, Severity::Warning)));
        }
    }

    #[test]
    fn settings_that_cannot_be_read_are_a_warning_and_a_stream_is_refused() {
        let unread = Facts::of("in", Err("ACCESS_REFUSED".to_owned()), &Options::default()).unwrap();
        assert_eq!(found(&unread), [(Check::Settings, Severity::Warning)]);
        let declared = |limit| Options { delivery_limit: Some(limit), ..Options::default() };
        let limit = |limit| Facts::of("in", Err(String::new()), &declared(limit)).unwrap().capabilities.delivery_limit;
        assert_eq!([limit(50), limit(2_000_000)], [Some(50), None]);
        let mut table = FieldTable::default();
        table.insert("x-queue-type".into(), AMQPValue::LongString("stream".into()));
        assert!(Facts::of("in", Ok(Arguments::of_ours(table)), &Options::default()).is_err());
    }
}
