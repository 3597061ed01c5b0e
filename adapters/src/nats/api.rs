//! JetStream's own requests, as far as a consumer needs them, each with one kind of error.

use async_nats::jetstream::consumer::{Config as ConsumerConfig, Info as ConsumerInfo};
use async_nats::jetstream::context::RequestErrorKind;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{Config as StreamConfig, Info as StreamInfo};
use async_nats::jetstream::{Error, ErrorCode};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::connection::{ANSWER, Connection};
use super::error::NatsError;

/// A consumer or stream of this name was made by somebody else meanwhile.
pub(super) const ALREADY_THERE: [ErrorCode; 3] =
    [ErrorCode::CONSUMER_NAME_EXIST, ErrorCode::STREAM_NAME_EXIST, ErrorCode::CONSUMER_ALREADY_EXISTS];

impl Connection {
    pub(super) async fn stream(&self, name: &str) -> Result<Option<StreamConfig>, NatsError> {
        let found = self.api(&format!("STREAM.INFO.{name}"), &json!({})).await;
        Ok(unless(ErrorCode::STREAM_NOT_FOUND, found)?.map(|info: StreamInfo| info.config))
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
        let info: StreamInfo = self.api(&format!("STREAM.CREATE.{}", config.name), config).await?;
        Ok(info.config)
    }

    pub(super) async fn consumer(&self, stream: &str, durable: &str) -> Result<Option<ConsumerInfo>, NatsError> {
        let found = self.api(&format!("CONSUMER.INFO.{stream}.{durable}"), &json!({})).await;
        unless(ErrorCode::CONSUMER_NOT_FOUND, found)
    }

    pub(super) async fn create_consumer(
        &self,
        stream: &str,
        durable: &str,
        config: &ConsumerConfig,
    ) -> Result<ConsumerInfo, NatsError> {
        // A server of 2.9 knows no action, and changes one that is there.
        let request = json!({ "stream_name": stream, "config": config, "action": "create" });
        self.api(&format!("CONSUMER.CREATE.{stream}.{durable}"), &request).await
    }

    pub(super) async fn api<T: DeserializeOwned>(&self, request: &str, body: &impl Serialize) -> Result<T, NatsError> {
        if self.is_over() {
            return Err(self.why());
        }
        match self.jetstream.request(request.to_owned(), body).await {
            Ok(Response::Ok(answer)) => Ok(answer),
            Ok(Response::Err { error }) => Err(refusal(request, &error)),
            Err(error) => Err(match error.kind() {
                RequestErrorKind::NoResponders => NatsError::NoResponders(request.to_owned()),
                RequestErrorKind::TimedOut => self.silent(request, ANSWER),
                RequestErrorKind::Other if self.is_over() => self.why(),
                _ => NatsError::Protocol(format!("the answer to `{request}`: {error}")),
            }),
        }
    }
}

/// What JetStream says no to, and why.
pub(super) fn refusal(request: &str, error: &Error) -> NatsError {
    NatsError::JetStream { request: request.to_owned(), code: error.error_code().0, description: error.to_string() }
}

fn unless<T>(missing: ErrorCode, found: Result<T, NatsError>) -> Result<Option<T>, NatsError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(NatsError::JetStream { code, .. }) if code == missing.0 => Ok(None),
        Err(error) => Err(error),
    }
}
