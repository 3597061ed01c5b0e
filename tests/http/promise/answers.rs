//! Each answer, and what is stored by then.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use inboxed::http::Webhook;
use inboxed::store::Reason;
use inboxed::{Headers, RetryPolicy, RunError, UnknownType, on};

use super::handlers::{Door, event_that, obey, wait};
use super::{Shop, record};
use crate::client::{Answer, begin, post, post_with};
use crate::common::{event, within};
use crate::server::serve;

impl Shop {
    async fn serve(&self) -> std::net::SocketAddr {
        let slow = RetryPolicy::default().attempts(2).backoff(Duration::from_secs(3), Duration::from_secs(3));
        serve(Webhook::new(Arc::new(self.consumer().retry(slow).handle("events", obey)), "events").unwrap()).await
    }

    /// Whether nothing has come of any request.
    pub(super) async fn is_untouched(&self) -> bool {
        self.claims().await == 0 && self.effects().await.is_empty() && self.letters().await.is_empty()
    }
}

fn told(answer: &Answer) -> (u16, &str) {
    (answer.status, &answer.text)
}

#[tokio::test]
async fn answer_comes_after_the_commit_and_a_copy_is_a_duplicate() {
    let (shop, door) = (Shop::open().await, Door::closed());
    let app = Arc::new(shop.consumer().state(door.clone()).handle("events", wait));
    let address = serve(Webhook::new(app, "events").unwrap()).await;
    let mut sending = tokio::spawn(post(address, event("a")));
    let told_early = tokio::select! { () = door.come(1) => None, answer = &mut sending => Some(answer) };
    assert!(told_early.is_none() && !sending.is_finished(), "{told_early:?}");
    door.open();
    let first = within(sending).await.unwrap();
    assert_eq!((told(&first), shop.effects().await), ((200, "done"), vec!["a".to_owned()]));
    assert_eq!(told(&post(address, event("a")).await), (200, "duplicate"));
    assert_eq!(shop.effects().await, ["a"]);
}

#[tokio::test]
async fn failed_body_is_answered_503_and_at_the_limit_202() {
    let shop = Shop::open().await;
    let address = shop.serve().await;
    let answer = post(address, event_that("a", "Fail")).await;
    assert_eq!(answer.status, 503);
    assert!(matches!(answer.retry_after(), Some(2 | 3)), "half of three seconds or more, rounded up: {answer:?}");
    assert!(shop.letters().await.is_empty());
    assert_eq!(told(&post(address, event_that("a", "Fail")).await), (202, "attempts_exhausted"));
    assert_eq!(shop.letter().await.reason, Reason::AttemptsExhausted);
    assert!(shop.effects().await.is_empty());
}

#[tokio::test]
async fn message_that_no_retry_can_help_is_answered_202_once_it_is_kept() {
    let shop = Shop::open().await;
    assert_eq!(told(&post(shop.serve().await, event_that("a", "Despair")).await), (202, "permanent"));
    let letter = shop.letter().await;
    assert_eq!((letter.reason, letter.body.as_ref()), (Reason::Permanent, event_that("a", "Despair").as_bytes()));
}

#[tokio::test]
async fn undecodable_bytes_are_answered_400_once_they_are_kept_with_their_headers() {
    let shop = Shop::open().await;
    let bytes = b"\xff\x00{not json";
    let headers = ["X-Sender: M\u{fc}ller", "Authorization: Bearer s3cret", "Cookie: session=1"];
    let answer = within(post_with(shop.serve().await, &headers, bytes)).await.unwrap();
    assert_eq!(told(&answer), (400, "undecodable"));
    let letter = shop.letter().await;
    assert_eq!((letter.reason, letter.body.as_ref()), (Reason::Undecodable, &bytes[..]));
    assert_eq!(letter.headers, Headers::from([("host", "localhost"), ("x-sender", "M\u{fc}ller")]));
}

#[tokio::test]
async fn message_without_a_key_is_answered_400() {
    let shop = Shop::open().await;
    assert_eq!(told(&post(shop.serve().await, event("")).await), (400, "bad_key"));
    assert_eq!(shop.letter().await.reason, Reason::BadKey);
}

#[tokio::test]
async fn other_payload_under_a_done_key_is_answered_409_if_it_is_kept() {
    let shop = Shop::open().await;
    let address = shop.serve().await;
    assert_eq!(post(address, event("a")).await.status, 200);
    assert_eq!(told(&post(address, event_that("a", "Fail")).await), (409, "key_conflict"));
    assert_eq!((shop.letter().await.reason, shop.effects().await.len()), (Reason::KeyConflict, 1));
}

#[tokio::test]
async fn unknown_type_is_answered_as_the_consumer_declares() {
    let declared = [
        (UnknownType::GiveBack, (503, "try again"), 0),
        (UnknownType::DeadLetter, (422, "unknown_type"), 1),
        (UnknownType::Skip, (200, "skipped"), 0),
    ];
    for (then, expected, letters) in declared {
        let shop = Shop::open().await;
        let app = shop.consumer().unknown_type(then).handle(on("events").header("x-type", "placed"), record);
        let address = serve(Webhook::new(Arc::new(app), "events").unwrap()).await;
        let typed = async |header| within(post_with(address, &[header], event("a"))).await.unwrap();
        let other = typed("X-Type: paid").await;
        assert_eq!((told(&other), other.retry_after().is_some()), (expected, expected.0 == 503), "{then:?}");
        assert_eq!((shop.letters().await.len(), shop.effects().await.len()), (letters, 0), "{then:?}");
        assert_eq!(told(&typed("X-Type: placed").await), (200, "done"));
    }
}

#[tokio::test]
async fn dead_letters_are_answered_as_the_sender_needs_it() {
    let shop = Shop::open().await;
    let app = Arc::new(shop.consumer().handle("events", record));
    let webhook = Webhook::new(app, "events").unwrap().dead_letters_as(StatusCode::OK);
    assert_eq!(told(&post(serve(webhook).await, "{").await), (200, "undecodable"));
    assert_eq!(shop.letters().await.len(), 1);
}

#[tokio::test]
async fn undecodable_bytes_sent_again_are_one_letter_if_what_each_attempt_has_anew_is_left_out() {
    let shop = Shop::open().await;
    let app = Arc::new(shop.consumer().handle("events", record));
    let address = serve(Webhook::new(app, "events").unwrap().without_header("X-Attempt")).await;
    for attempt in ["X-Attempt: 1", "X-Attempt: 2"] {
        assert_eq!(within(post_with(address, &[attempt], "{")).await.unwrap().status, 400);
    }
    assert_eq!(shop.letters().await.len(), 1);
}

#[tokio::test]
async fn other_methods_are_answered_405_and_nothing_is_stored() {
    let shop = Shop::open().await;
    let request = b"GET /hook HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let answer = within(crate::client::answer(begin(shop.serve().await, request).await.unwrap())).await.unwrap();
    assert_eq!((answer.status, answer.header("allow")), (405, Some("POST")));
    assert!(shop.is_untouched().await);
}

#[tokio::test]
async fn source_without_a_handler_is_refused_at_once() {
    let shop = Shop::open().await;
    let refused = Webhook::new(Arc::new(shop.consumer().handle("events", record)), "orders").unwrap_err();
    assert!(matches!(&refused, RunError::UnknownSource(source) if source == "orders"), "{refused}");
}
