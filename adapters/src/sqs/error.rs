//! What can be wrong with the service, a queue or a message.

use std::error::Error;
use std::fmt::Write as _;
use std::time::Duration;

use aws_sdk_sqs::config::http::HttpResponse;
use aws_sdk_sqs::error::{ProvideErrorMetadata, SdkError};
use inboxed_runtime::broker::BrokerError;

/// Why SQS can't be reached or used. Inside a [`BrokerError`], which says whether waiting helps.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SqsError {
    /// The URL can't be read. It isn't repeated: it may hold a secret.
    #[error("the SQS URL can't be used: {0}")]
    Url(&'static str),
    /// The environment lacks what the URL doesn't say.
    #[error("neither the SQS URL nor the environment has {0}")]
    Environment(&'static str),
    /// The service is reached by https only.
    #[error(
        "`sqs://` without a host needs https, which is behind the feature `sqs-tls` of `inboxed`: turn that on, or give a client \
         of your own to `Sqs::from_client`, or name an emulator, `sqs://KEY:SECRET@127.0.0.1:4566`"
    )]
    Tls,
    /// There is no such queue.
    #[error(
        "there is no queue `{0}` in this region and account: make it by `Consumer::create_topology`, or by hand, or say where it \
         is by `Sqs::source`"
    )]
    NoQueue(String),
    /// The queue that is there isn't as it must be.
    #[error("queue `{queue}` {difference}")]
    Differs {
        /// The queue.
        queue: String,
        /// What differs, and what to do.
        difference: String,
    },
    /// The name can't be a queue's.
    #[error("`{0}` can't name a queue: {1}")]
    Name(String, &'static str),
    /// The message can't be published as it is.
    #[error("the message can't be published: {0}")]
    Message(String),
    /// The service says no, and will say so again.
    #[error("SQS refuses {action}: {why} ({code})")]
    Refused {
        /// What it was asked.
        action: &'static str,
        /// Its name for the error.
        code: String,
        /// Its text.
        why: String,
    },
    /// The service doesn't answer, is too busy, or has a fault of its own.
    #[error("SQS doesn't answer {action}: {why}")]
    Unreachable {
        /// What it was asked.
        action: &'static str,
        /// What went wrong.
        why: String,
    },
}

/// The codes that mean "not now", beside those of 5xx answers. Credentials that have run out are renewed by their provider.
const PASSING: [&str; 14] = [
    "OverLimit",
    "RequestThrottled",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
    "KmsThrottled",
    "KMS.ThrottlingException",
    "QueueDeletedRecently",
    "AWS.SimpleQueueService.QueueDeletedRecently",
    "ExpiredToken",
    "ExpiredTokenException",
    "RequestExpired",
    "RequestTimeout",
    "InternalError",
];

impl SqsError {
    /// What came of a call about this queue.
    pub(super) fn of<E>(action: &'static str, queue: &str, error: &SdkError<E, HttpResponse>) -> Self
    where
        E: Error + ProvideErrorMetadata + Send + Sync + 'static,
    {
        let passing = |why| Self::Unreachable { action, why };
        let SdkError::ServiceError(refusal) = error else { return passing(chain(error)) };
        let (answer, status) = (refusal.err(), refusal.raw().status().as_u16());
        let code = answer.code().unwrap_or("an unknown error").to_owned();
        let why = answer.message().unwrap_or("without a reason").trim_end_matches('.').to_owned();
        match &*code {
            "QueueDoesNotExist" | "AWS.SimpleQueueService.NonExistentQueue" => Self::NoQueue(queue.to_owned()),
            code if status >= 500 || PASSING.contains(&code) => passing(format!("{why} ({code})")),
            _ => Self::Refused { action, code, why },
        }
    }

    /// Nothing came within this time.
    pub(super) fn silence(action: &'static str, time: Duration) -> Self {
        Self::Unreachable { action, why: format!("nothing for {time:?}") }
    }
}

impl From<SqsError> for BrokerError {
    fn from(error: SqsError) -> Self {
        match error {
            SqsError::Unreachable { .. } => Self::Unreachable(Box::new(error)),
            _ => Self::Refused(Box::new(error)),
        }
    }
}

/// An error with its causes. The SDK's own text names only its kind.
fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        // The text grows in memory, where writing can't fail.
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}
