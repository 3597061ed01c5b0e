//! JetStream's own requests and their answers, as far as a consumer needs them.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::connection::Connection;
use super::error::NatsError;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(5);

pub(super) const STREAM_NOT_FOUND: u64 = 10_059;
pub(super) const CONSUMER_NOT_FOUND: u64 = 10_014;
/// A consumer or stream of this name was made by somebody else meanwhile.
pub(super) const ALREADY_THERE: [u64; 3] = [10_013, 10_058, 10_148];

/// A stream as the server has it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct StreamConfig {
    pub(super) name: String,
    pub(super) subjects: Vec<String>,
    pub(super) storage: String,
    pub(super) retention: String,
    /// Nanoseconds; 0 is for ever.
    pub(super) max_age: i64,
}

#[derive(Debug, Deserialize)]
struct StreamInfo {
    config: StreamConfig,
}

/// A consumer as the server has it. Durations are in nanoseconds.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct ConsumerConfig {
    pub(super) durable_name: String,
    pub(super) ack_policy: String,
    pub(super) deliver_policy: String,
    pub(super) ack_wait: i64,
    pub(super) max_deliver: i64,
    pub(super) max_ack_pending: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) filter_subject: String,
    #[serde(skip_serializing)]
    pub(super) filter_subjects: Vec<String>,
    #[serde(skip_serializing)]
    pub(super) deliver_subject: Option<String>,
    #[serde(skip_serializing)]
    pub(super) backoff: Vec<i64>,
    #[serde(skip_serializing)]
    pub(super) headers_only: bool,
    #[serde(skip_serializing)]
    pub(super) max_batch: usize,
    #[serde(skip_serializing)]
    pub(super) max_expires: i64,
    #[serde(skip_serializing)]
    pub(super) inactive_threshold: i64,
}

#[derive(Debug, Deserialize)]
pub(super) struct ConsumerInfo {
    pub(super) config: ConsumerConfig,
    /// When it was made, as the server writes it: another one of the same name has another moment.
    #[serde(default)]
    pub(super) num_ack_pending: i64,
    #[serde(default)]
    pub(super) num_pending: u64,
    #[serde(default)]
    pub(super) paused: bool,
}

/// What the server took for a published message.
#[derive(Debug, Deserialize)]
pub(super) struct Published {
    pub(super) seq: u64,
    #[serde(default)]
    pub(super) duplicate: bool,
}

#[derive(Debug, Deserialize)]
struct Refusal {
    error: Reason,
}

#[derive(Debug, Deserialize)]
struct Reason {
    #[serde(default)]
    err_code: u64,
    #[serde(default)]
    description: String,
}

impl Connection {
    pub(super) async fn stream(&self, name: &str) -> Result<Option<StreamConfig>, NatsError> {
        let found = self.api(&format!("STREAM.INFO.{name}"), &Value::Null).await;
        Ok(unless(STREAM_NOT_FOUND, found)?.map(|info: StreamInfo| info.config))
    }

    /// The name of the stream that holds a subject.
    pub(super) async fn stream_of(&self, subject: &str) -> Result<Option<String>, NatsError> {
        #[derive(Deserialize)]
        struct Names {
            streams: Option<Vec<String>>,
        }
        let names: Names = self.api("STREAM.NAMES", &json!({ "subject": subject })).await?;
        Ok(names.streams.unwrap_or_default().into_iter().next())
    }

    pub(super) async fn create_stream(&self, config: &StreamConfig) -> Result<StreamConfig, NatsError> {
        let info: StreamInfo = self.api(&format!("STREAM.CREATE.{}", config.name), &json!(config)).await?;
        Ok(info.config)
    }

    pub(super) async fn consumer(&self, stream: &str, durable: &str) -> Result<Option<ConsumerInfo>, NatsError> {
        unless(CONSUMER_NOT_FOUND, self.api(&format!("CONSUMER.INFO.{stream}.{durable}"), &Value::Null).await)
    }

    pub(super) async fn create_consumer(
        &self,
        stream: &str,
        config: &ConsumerConfig,
    ) -> Result<ConsumerInfo, NatsError> {
        // A server of 2.9 knows no action, and changes one that is there.
        let request = json!({ "stream_name": stream, "config": config, "action": "create" });
        self.api(&format!("CONSUMER.CREATE.{stream}.{}", config.durable_name), &request).await
    }

    async fn api<T: DeserializeOwned>(&self, request: &str, body: &Value) -> Result<T, NatsError> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = self.ask(&format!("$JS.API.{request}"), body.as_bytes(), ANSWER).await?;
        answer(request, &reply.body)
    }
}

/// Reads JetStream's answer to a request.
pub(super) fn answer<T: DeserializeOwned>(request: &str, body: &[u8]) -> Result<T, NatsError> {
    if let Ok(Refusal { error: Reason { err_code: code, description } }) = serde_json::from_slice(body) {
        return Err(NatsError::JetStream { request: request.to_owned(), code, description });
    }
    serde_json::from_slice(body).map_err(|error| NatsError::Protocol(format!("the answer to `{request}`: {error}")))
}

fn unless<T>(missing: u64, found: Result<T, NatsError>) -> Result<Option<T>, NatsError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(NatsError::JetStream { code, .. }) if code == missing => Ok(None),
        Err(error) => Err(error),
    }
}

/// Nanoseconds, as JetStream counts.
pub(super) fn nanos(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// A duration of JetStream's, unless it is none.
pub(super) fn duration(nanos: i64) -> Option<Duration> {
    u64::try_from(nanos).ok().filter(|nanos| *nanos > 0).map(Duration::from_nanos)
}
