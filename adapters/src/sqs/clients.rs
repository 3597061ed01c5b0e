//! The SDK's clients: one for calls that are answered at once, and one of the same for long polls.

use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryPartition;
use aws_sdk_sqs::config::timeout::TimeoutConfig;
use aws_sdk_sqs::config::{BehaviorVersion, Config, Region, SharedHttpClient, StalledStreamProtectionConfig};

use super::address::Address;
use super::error::SqsError;

/// How long one attempt of a call may take.
const ATTEMPT: Duration = Duration::from_secs(5);

/// How long a call may take, with all of its attempts.
pub(super) const CALL: Duration = Duration::from_secs(15);

/// How long the answer to a poll may take beyond the wait that it asks for.
const ATTEMPT_OF_POLL: Duration = Duration::from_secs(5);

/// The same for all of its attempts.
const POLL: Duration = Duration::from_secs(10);

/// When a poll is given up, whatever the SDK believes.
pub(super) fn patience(wait: Duration) -> Duration {
    wait + POLL + Duration::from_secs(5)
}

/// The client of a URL.
pub(super) fn of(address: &Address) -> Result<Client, SqsError> {
    let http = match &address.endpoint {
        Some(_) => aws_smithy_http_client::Builder::new().build_http(),
        None => https()?,
    };
    let timeouts = TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT).operation_timeout(CALL);
    let mut config = Config::builder()
        // The newest when this was written: what an SDK makes of `latest` differs from one to the next.
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new(address.region.clone()))
        .credentials_provider(address.credentials.clone())
        .timeout_config(timeouts.build())
        .http_client(http);
    config.set_endpoint_url(address.endpoint.clone());
    Ok(Client::from_conf(config.build()))
}

#[cfg(feature = "sqs-tls")]
#[allow(clippy::unnecessary_wraps, reason = "it fails without the feature")]
fn https() -> Result<SharedHttpClient, SqsError> {
    use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
    Ok(aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https())
}

#[cfg(not(feature = "sqs-tls"))]
fn https() -> Result<SharedHttpClient, SqsError> {
    Err(SqsError::Tls)
}

/// The same client, whose calls end: without a timeout of its own, a connection that has died silently holds one for ever.
pub(super) fn calling(client: &Client) -> Client {
    let bounds = TimeoutConfig::builder().operation_attempt_timeout(ATTEMPT).operation_timeout(CALL);
    let given = client.config().timeout_config().map(TimeoutConfig::to_builder).unwrap_or_default();
    let timeouts = given.take_unset_from(bounds);
    Client::from_conf(client.config().to_builder().timeout_config(timeouts.build()).build())
}

/// The same client for polls that wait so long. It is one for all polls: the SDK keeps credentials by client.
pub(super) fn polling(client: &Client, wait: Duration) -> Client {
    let given = client.config().timeout_config().map(TimeoutConfig::to_builder);
    // A timeout that is meant for short calls would end each poll.
    let timeouts = given.unwrap_or_default().disable_read_timeout();
    let timeouts = timeouts.operation_attempt_timeout(wait + ATTEMPT_OF_POLL).operation_timeout(wait + POLL);
    let config = client.config().to_builder().timeout_config(timeouts.build());
    // An idle poll is no stalled stream. Retries of polls must not use up those of acknowledgements.
    let config = config
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .retry_partition(RetryPartition::new("inboxed SQS polls"));
    Client::from_conf(config.build())
}
