//! The answers: what a sender is told of its message.

use std::time::Duration;

use ::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER};
use ::http::{HeaderValue, Response, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use inboxed_runtime::store::Reason;
use inboxed_runtime::{Delivered, Outcome};

pub(super) type Answer = Response<Full<Bytes>>;

/// When to try again if nothing says when that may help.
const SOON: Duration = Duration::from_secs(1);

/// The answer to a message whose outcome is durable, or that has none yet.
pub(super) fn to(delivered: Delivered, dead_letters_as: Option<StatusCode>) -> Answer {
    match delivered.outcome {
        Outcome::Done => answer(StatusCode::OK, "done"),
        Outcome::Duplicate => answer(StatusCode::OK, "duplicate"),
        Outcome::Skipped => answer(StatusCode::OK, "skipped"),
        Outcome::DeadLettered => {
            let status = dead_letters_as.unwrap_or_else(|| status_of_letter(delivered.reason));
            answer(status, delivered.reason.map_or("dead letter", Reason::as_str))
        }
        Outcome::Retry(delay) => later(delay, "try again"),
        _ => later(SOON, "try again"),
    }
}

/// By 4xx the sender learns that these bytes can't be handled; what failed on this side is no fault of theirs.
fn status_of_letter(reason: Option<Reason>) -> StatusCode {
    match reason {
        Some(Reason::Undecodable | Reason::BadKey) => StatusCode::BAD_REQUEST,
        Some(Reason::KeyConflict) => StatusCode::CONFLICT,
        Some(Reason::UnknownType) => StatusCode::UNPROCESSABLE_ENTITY,
        _ => StatusCode::ACCEPTED,
    }
}

pub(super) fn only_post() -> Answer {
    let mut answer = answer(StatusCode::METHOD_NOT_ALLOWED, "messages are sent by POST");
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    answer
}

pub(super) fn too_long(limit: usize) -> Answer {
    answer(StatusCode::PAYLOAD_TOO_LARGE, format!("a body may have {limit} bytes here"))
}

/// Perhaps on this side, by a time limit: the sender may be there still, with a message that nobody has.
pub(super) fn broke_off() -> Answer {
    later(SOON, "the body broke off")
}

pub(super) fn not_genuine() -> Answer {
    answer(StatusCode::UNAUTHORIZED, "the signature isn't the sender's")
}

pub(super) fn busy() -> Answer {
    later(SOON, "too many requests at once")
}

pub(super) fn shutting_down() -> Answer {
    later(SOON, "shutting down")
}

pub(super) fn out_of_reach() -> Answer {
    later(SOON, "not available at the moment")
}

fn later(delay: Duration, text: &'static str) -> Answer {
    let mut answer = answer(StatusCode::SERVICE_UNAVAILABLE, text);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(whole_seconds(delay)));
    answer
}

/// Rounded up: a sender that comes too early is one more failure.
fn whole_seconds(delay: Duration) -> u64 {
    (delay.as_secs() + u64::from(delay.subsec_nanos() > 0)).max(1)
}

fn answer(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_rounded_up_and_never_none() {
        let millis = |millis| whole_seconds(Duration::from_millis(millis));
        assert_eq!([0, 1, 1_000, 1_001, 59_999, 60_000].map(millis), [1, 1, 1, 2, 60, 60]);
    }
}
