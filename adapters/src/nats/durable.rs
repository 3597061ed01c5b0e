//! The durable: made if it isn't there, held against what is wanted if it is.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::{AckPolicy, Config, Info};
use inboxed_runtime::broker::Wanted;

use super::api::ALREADY_THERE;
use super::connection::Connection;
use super::error::NatsError;
use super::options::Options;
use super::place::Place;

/// A shorter lease ends while an extension is on its way.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);

/// A shorter lease than this is worth a warning: one slow moment of the network, and messages come twice.
const SHORT_LEASE: Duration = Duration::from_secs(5);

/// A durable that can be consumed.
#[derive(Clone, Debug)]
pub(super) struct Durable {
    /// How long a delivery stays here, as the server counts.
    pub(super) lease: Duration,
    /// The cap on messages that are delivered and not acknowledged, if there is one.
    pub(super) cap: Option<usize>,
    /// The most that one pull may ask for.
    pub(super) most: usize,
    /// The longest that one pull may wait.
    pub(super) longest: Option<Duration>,
}

/// The durable as it would be made for a place.
fn wished(place: &Place, wanted: &Wanted, options: &Options) -> Config {
    Config {
        durable_name: Some(place.durable.clone()),
        ack_policy: AckPolicy::Explicit,
        ack_wait: options.ack_wait,
        // Without a limit: the server's count rises at each restart too, and what reaches a limit is never seen again.
        max_deliver: -1,
        max_ack_pending: options.cap(wanted.in_flight),
        filter_subject: place.subject.clone().unwrap_or_default(),
        ..Config::default()
    }
}

/// Finds the durable, or makes it where that is allowed, and checks what the server says of it.
pub(super) async fn open(
    server: &Connection,
    place: &Place,
    wanted: &Wanted,
    options: &Options,
) -> Result<Durable, NatsError> {
    let found = match server.consumer(&place.stream.name, &place.durable).await? {
        Some(Info { config, .. }) => config,
        None if options.existing_only => {
            let missing = "isn't there, and `.existing_only()` forbids to make it: make it by `create_topology`";
            return Err(wrong(place, missing.to_owned()));
        }
        None => make(server, place, &wished(place, wanted, options)).await?.0,
    };
    check(&found, place, wanted, options)
}

/// Makes the durable if it isn't there, and answers whether it was made. One that differs is an error.
pub(super) async fn create(
    server: &Connection,
    place: &Place,
    wanted: &Wanted,
    options: &Options,
) -> Result<bool, NatsError> {
    let wished = wished(place, wanted, options);
    let (found, made) = match server.consumer(&place.stream.name, &place.durable).await? {
        Some(Info { config, .. }) => (config, false),
        None => make(server, place, &wished).await?,
    };
    match differences(&found, &wished, options) {
        differences if differences.is_empty() => Ok(made),
        differences => Err(wrong(
            place,
            format!(
                "is there and differs: {}: change it or delete it, set up the same here, or name another by `.durable(…)`",
                differences.join("; ")
            ),
        )),
    }
}

/// Makes the durable, unless somebody else is first. Answers with it, and with whether it was made here.
async fn make(server: &Connection, place: &Place, wished: &Config) -> Result<(Config, bool), NatsError> {
    let (stream, durable) = (&place.stream.name, &place.durable);
    match server.create_consumer(stream, durable, wished).await {
        Ok(Info { config, .. }) => Ok((config, true)),
        Err(NatsError::JetStream { code, .. }) if ALREADY_THERE.contains(&ErrorCode(code)) => {
            let gone = || NatsError::Silent(format!("durable `{durable}` goes as soon as it is made"));
            let Info { config, .. } = server.consumer(stream, durable).await?.ok_or_else(gone)?;
            Ok((config, false))
        }
        Err(error) => Err(error),
    }
}

/// What differs between the durable that is there and the one that would be made, with both values.
fn differences(found: &Config, wished: &Config, options: &Options) -> Vec<String> {
    let settings = |config: &Config| {
        let policy = format!("{:?}", config.ack_policy).to_ascii_lowercase();
        // The cap that isn't set grows with the concurrency, and one that is there already needn't.
        let cap = options.max_ack_pending.map_or("any".to_owned(), |_| config.max_ack_pending.to_string());
        [
            ("the subject that it pushes to", format!("{:?}", config.deliver_subject.as_deref().unwrap_or_default())),
            ("the acknowledgement policy", policy),
            ("the acknowledgement wait", format!("{:?}", config.ack_wait)),
            ("the backoff", format!("{:?}", config.backoff)),
            ("max_deliver", config.max_deliver.to_string()),
            ("max_ack_pending", cap),
            ("the filter", format!("{:?}", filters(config))),
            ("headers only", config.headers_only.to_string()),
            ("the time after which it is deleted unused", format!("{:?}", config.inactive_threshold)),
        ]
    };
    let pairs = settings(found).into_iter().zip(settings(wished));
    let different = pairs.filter(|((_, found), (_, wished))| found != wished);
    different.map(|((name, found), (_, wished))| format!("{name} is {found}, and {wished} is wanted")).collect()
}

/// The subjects that a durable hands out, all of the stream's without any.
fn filters(config: &Config) -> Vec<&str> {
    let one = (!config.filter_subject.is_empty()).then_some(&config.filter_subject);
    config.filter_subjects.iter().chain(one).map(String::as_str).collect()
}

fn wrong(place: &Place, difference: String) -> NatsError {
    NatsError::Durable { stream: place.stream.name.clone(), durable: place.durable.clone(), difference }
}

/// Refuses what would lose messages or stand still, and warns of what would repeat them.
fn check(config: &Config, place: &Place, wanted: &Wanted, options: &Options) -> Result<Durable, NatsError> {
    let refuse = |difference: String| Err(wrong(place, difference));
    let warn = |what: &str, cure: &str| {
        tracing::warn!(stream = %place.stream.name, durable = %place.durable, "the durable {what}: {cure}");
    };
    let edit = format!("`nats consumer edit {} {}", place.stream.name, place.durable);

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
    if config.max_deliver > 0 {
        if !options.allow_max_deliver {
            return refuse(format!(
                "gives a message up after {0} deliveries, restarts included, and nobody sees it again; the attempts of \
                 a handler are counted in the inbox: lift the limit by {edit} --max-deliver=-1`, or accept it by \
                 `.allow_max_deliver()`",
                config.max_deliver
            ));
        }
        let what = format!("gives a message up after {} deliveries, restarts included", config.max_deliver);
        warn(&what, &format!("lift the limit by {edit} --max-deliver=-1`"));
    }
    let in_flight = wanted.in_flight;
    let cap = usize::try_from(config.max_ack_pending).ok().filter(|cap| *cap > 0);
    match cap {
        // One at a time keeps the order, whatever the concurrency is.
        Some(1) => {}
        Some(cap) if cap <= in_flight => {
            return refuse(format!(
                "hands out at most {cap} unacknowledged messages (max_ack_pending), and this process alone takes \
                 {in_flight}, beside delayed retries: raise it by {edit} --max-pending={}`, or lower the concurrency",
                in_flight.saturating_mul(20).max(1_000)
            ));
        }
        _ => {}
    }
    let shortest = config.backoff.iter().copied().min().unwrap_or(config.ack_wait);
    let lease = if shortest.is_zero() { options.ack_wait } else { shortest };
    if lease < SHORTEST_LEASE {
        return refuse(format!(
            "takes a message back after {lease:?}, and that can't be kept up over a network, where {SHORTEST_LEASE:?} is \
             the least: set the acknowledgement wait by {edit} --wait=30s`"
        ));
    }
    if !config.backoff.is_empty() {
        let what = format!(
            "has a backoff that overrides its acknowledgement wait of {:?}: a message is taken back after {lease:?}",
            config.ack_wait
        );
        warn(&what, "make it without a backoff; retries are delayed by the consumer's own policy");
    } else if lease < SHORT_LEASE {
        let what = format!("takes a message back after {lease:?}, and less than {SHORT_LEASE:?} is short");
        warn(&what, &format!("set the acknowledgement wait by {edit} --wait=30s`"));
    }
    if !config.inactive_threshold.is_zero() {
        warn(
            &format!("is deleted when nobody pulls for {:?}", config.inactive_threshold),
            "lift that, or each longer stop replays the stream",
        );
    }
    let most = usize::try_from(config.max_batch).ok().filter(|most| *most > 0).unwrap_or(usize::MAX);
    let longest = Some(config.max_expires).filter(|longest| !longest.is_zero());
    Ok(Durable { lease, cap, most, longest })
}
