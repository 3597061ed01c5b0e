//! The durable: made if it isn't there, held against what would be made if that is asked for.

use std::time::Duration;

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::consumer::{AckPolicy, Config, Info};
use inboxed_runtime::Finding;
use inboxed_runtime::broker::Wanted;

use super::api::ALREADY_THERE;
use super::connection::Connection;
use super::error::NatsError;
use super::options::Options;
use super::place::Place;
use super::settings;

/// A durable that can be consumed.
#[derive(Clone, Debug)]
pub(super) struct Durable {
    /// How long a delivery stays here, as the server counts.
    pub(super) lease: Duration,
    /// The cap on messages that are delivered and not acknowledged, if there is one.
    pub(super) cap: Option<usize>,
    /// After how many deliveries the server gives a message up, if it does.
    pub(super) limit: Option<u32>,
    /// The most that one pull may ask for.
    pub(super) most: usize,
    /// The longest that one pull may wait.
    pub(super) longest: Option<Duration>,
    /// What is amiss with it and its stream.
    pub(super) findings: Vec<Finding>,
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

/// Finds a source's durable, or makes it where that is allowed, and reads what the server says of it.
pub(super) async fn open(
    server: &Connection,
    source: &str,
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
    settings::refuse(&found, place)?;
    Ok(settings::read(&found, place, source, wanted, options))
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
pub(super) fn filters(config: &Config) -> Vec<&str> {
    let one = (!config.filter_subject.is_empty()).then_some(&config.filter_subject);
    config.filter_subjects.iter().chain(one).map(String::as_str).collect()
}

pub(super) fn wrong(place: &Place, difference: String) -> NatsError {
    NatsError::Durable { stream: place.stream.name.clone(), durable: place.durable.clone(), difference }
}
