//! What the settings of a durable and its stream come to: what can't be consumed is an error, and what would lose, repeat or hold
//! up messages is a finding.

use std::time::Duration;

use async_nats::jetstream::consumer::{AckPolicy, Config};
use async_nats::jetstream::stream::{self, DiscardPolicy, StorageType};
use inboxed_runtime::broker::Wanted;
use inboxed_runtime::{Check, Finding};

use super::durable::{Durable, filters, wrong};
use super::error::NatsError;
use super::options::Options;
use super::place::Place;

/// A shorter lease ends while an extension is on its way.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);

/// A shorter lease than this is worth a warning: one slow moment of the network, and messages come twice.
const SHORT_LEASE: Duration = Duration::from_secs(5);

/// Refuses a durable that this can't consume through.
pub(super) fn refuse(config: &Config, place: &Place) -> Result<(), NatsError> {
    let refuse = |difference: String| Err(wrong(place, difference));
    if let Some(subject) = config.deliver_subject.as_ref().filter(|subject| !subject.is_empty()) {
        return refuse(format!("pushes to `{subject}`, and a pull consumer is needed: name another by `.durable(…)`"));
    }
    if config.ack_policy != AckPolicy::Explicit {
        return refuse(format!(
            "has the acknowledgement policy `{}`, under which messages are lost; `explicit` is needed: name another by \
             `.durable(…)`",
            format!("{:?}", config.ack_policy).to_ascii_lowercase()
        ));
    }
    if config.headers_only {
        return refuse("delivers headers only, and handlers need the body: name another by `.durable(…)`".to_owned());
    }
    let filters = filters(config);
    if filters != place.subject.as_deref().into_iter().collect::<Vec<_>>() {
        let asked = place.subject.as_deref().unwrap_or("all of the stream");
        return refuse(format!(
            "filters {filters:?}, and {asked} is wanted: name another by `.durable(…)`, or what it filters by \
             `Binding::subject(…)`"
        ));
    }
    Ok(())
}

/// What a durable that can be consumed does, and what is to be said of it to the consumer of this source.
pub(super) fn read(config: &Config, place: &Place, source: &str, wanted: &Wanted, options: &Options) -> Durable {
    let shortest = config.backoff.iter().copied().min().unwrap_or(config.ack_wait);
    let durable = Durable {
        lease: if shortest.is_zero() { options.ack_wait } else { shortest },
        cap: usize::try_from(config.max_ack_pending).ok().filter(|cap| *cap > 0),
        limit: u32::try_from(config.max_deliver).ok().filter(|limit| *limit > 0),
        most: usize::try_from(config.max_batch).ok().filter(|most| *most > 0).unwrap_or(usize::MAX),
        longest: Some(config.max_expires).filter(|longest| !longest.is_zero()),
        findings: Vec::new(),
    };
    let about = About { source, place };
    let findings = [
        about.lease(config, durable.lease),
        about.delivery_limit(durable.limit),
        about.cap(durable.cap, wanted.in_flight),
        about.idle(config.inactive_threshold),
        about.storage(),
        about.discards(),
    ];
    Durable { findings: findings.into_iter().flatten().collect(), ..durable }
}

/// What the findings are about.
struct About<'a> {
    source: &'a str,
    place: &'a Place,
}

impl About<'_> {
    fn durable(&self) -> String {
        format!("durable `{}` of stream `{}`", self.place.durable, self.place.stream.name)
    }

    /// The server's own tool to change the durable by.
    fn edit(&self, option: &str) -> String {
        format!("`nats consumer edit {} {} {option}`", self.place.stream.name, self.place.durable)
    }

    fn lease(&self, config: &Config, lease: Duration) -> Option<Finding> {
        let durable = self.durable();
        if lease < SHORTEST_LEASE {
            let found = format!(
                "{durable} takes a message back after {lease:?}, and that can't be kept up over a network, where \
                 {SHORTEST_LEASE:?} is the least"
            );
            let cure = format!("set the acknowledgement wait by {}", self.edit("--wait=30s"));
            return Some(Finding::error(Check::Lease, self.source, found, cure));
        }
        if !config.backoff.is_empty() {
            let found = format!(
                "{durable} has a backoff: a message is taken back after its shortest step, {lease:?}, whatever acknowledgement \
                 wait it was made with"
            );
            let cure = "make it without a backoff; retries are delayed by the consumer's own policy";
            return Some(Finding::warning(Check::Lease, self.source, found, cure));
        }
        (lease < SHORT_LEASE).then(|| {
            let found =
                format!("{durable} takes a message back after {lease:?}, and less than {SHORT_LEASE:?} is short");
            let cure = format!("set the acknowledgement wait by {}", self.edit("--wait=30s"));
            Finding::warning(Check::Lease, self.source, found, cure)
        })
    }

    fn delivery_limit(&self, limit: Option<u32>) -> Option<Finding> {
        let limit = limit?;
        let found = format!(
            "{} gives a message up after {limit} deliveries, and there is no dead-letter queue: it stays in the stream, where \
             nobody sees it again",
            self.durable()
        );
        let cure = format!("lift the limit by {}; attempts are counted in the inbox", self.edit("--max-deliver=-1"));
        Some(Finding::error(Check::DeadLetterQueue, self.source, found, cure))
    }

    fn cap(&self, cap: Option<usize>, in_flight: usize) -> Option<Finding> {
        // One at a time keeps the order, whatever the concurrency is.
        let cap = cap.filter(|cap| *cap > 1 && *cap <= in_flight)?;
        let found = format!(
            "{} hands out at most {cap} unacknowledged messages (max_ack_pending), and this process alone takes {in_flight}, \
             beside delayed retries",
            self.durable()
        );
        let ample = in_flight.saturating_mul(20).max(1_000);
        let cure = format!("raise it by {}, or lower the concurrency", self.edit(&format!("--max-pending={ample}")));
        Some(Finding::error(Check::InFlight, self.source, found, cure))
    }

    fn idle(&self, threshold: Duration) -> Option<Finding> {
        let found = format!("{} is deleted when nobody pulls for {threshold:?}", self.durable());
        let cure = "lift that, or each longer stop replays the stream";
        (!threshold.is_zero()).then(|| Finding::warning(Check::Settings, self.source, found, cure))
    }

    fn storage(&self) -> Option<Finding> {
        let stream = &self.place.stream;
        let found = format!("stream `{}` is in memory, and a restart of the server loses its messages", stream.name);
        let cure = "make it with the storage `file`";
        (stream.storage != StorageType::File).then(|| Finding::warning(Check::Durability, self.source, found, cure))
    }

    fn discards(&self) -> Option<Finding> {
        let stream = &self.place.stream;
        let limits = limits(stream);
        if limits.is_empty() || stream.discard != DiscardPolicy::Old {
            return None;
        }
        let found = format!("stream `{}` drops its oldest messages, handled or not, beyond {limits}", stream.name);
        let cure = format!(
            "lift the limit, or refuse new messages instead by `nats stream edit {} --discard=new`",
            stream.name
        );
        Some(Finding::warning(Check::Retention, self.source, found, cure))
    }
}

/// By what a stream drops messages, apart from their age.
fn limits(stream: &stream::Config) -> String {
    let limits = [
        ("messages", stream.max_messages),
        ("bytes", stream.max_bytes),
        ("messages of a subject", stream.max_messages_per_subject),
    ];
    let limits = limits.iter().filter(|(_, limit)| *limit > 0).map(|(what, limit)| format!("{limit} {what}"));
    limits.collect::<Vec<_>>().join(" or ")
}
