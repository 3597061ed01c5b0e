//! What is too long, and too much at once.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::middleware::map_request;
use http_body_util::Limited;
use inboxed::http::Webhook;

use super::handlers::{Door, wait};
use super::{Shop, record};
use crate::client::{answer, begin, head, post};
use crate::common::{event, until, within};
use crate::server::{serve, serve_router};

#[tokio::test]
async fn body_beyond_the_limit_is_answered_413_and_nothing_is_stored() {
    let shop = Shop::open().await;
    let app = Arc::new(shop.consumer().handle("events", record));
    let limit = event("a").len();
    let address = serve(Webhook::new(app, "events").unwrap().body_limit(limit)).await;

    // It isn't waited for: nothing of it is sent.
    let declared = head(&[&format!("Content-Length: {}", limit + 1)]);
    let told = within(answer(begin(address, declared.as_bytes()).await.unwrap())).await.unwrap();
    assert_eq!(told.status, 413);

    let undeclared = head(&["Transfer-Encoding: chunked"]) + &format!("{:x}\r\n{}\r\n", limit + 1, event("ab"));
    let told = within(answer(begin(address, undeclared.as_bytes()).await.unwrap())).await.unwrap();
    assert_eq!(told.status, 413);

    assert!(shop.is_untouched().await);
    assert_eq!(post(address, event("a")).await.status, 200);
}

#[tokio::test]
async fn limit_of_a_body_is_a_mebibyte_by_default() {
    let shop = Shop::open().await;
    let app = Arc::new(shop.consumer().handle("events", record));
    let address = serve(Webhook::new(app, "events").unwrap()).await;
    let of_length = |bytes: usize| event("a") + &" ".repeat(bytes - event("a").len());
    assert_eq!(post(address, of_length(1024 * 1024 + 1)).await.status, 413);
    assert_eq!(post(address, of_length(1024 * 1024)).await.status, 200);
}

#[tokio::test]
async fn more_than_may_be_handled_at_once_is_answered_503() {
    let (shop, door) = (Shop::open().await, Door::closed());
    let app = Arc::new(shop.consumer().state(door.clone()).handle("events", wait));
    let address = serve(Webhook::new(app, "events").unwrap().concurrency(1)).await;
    let first = tokio::spawn(post(address, event("a")));
    door.come(1).await;
    let second = post(address, event("b")).await;
    assert_eq!((second.status, second.retry_after()), (503, Some(1)));
    door.open();
    assert_eq!(within(first).await.unwrap().status, 200);
    assert_eq!(post(address, event("b")).await.status, 200);
    assert_eq!(shop.effects().await, ["a", "b"]);
}

/// Of a sender that is slow, a time limit on this side makes a body that breaks off. Told 400, he might forget his message.
#[tokio::test]
async fn body_that_is_cut_on_this_side_is_answered_503_and_one_that_is_too_long_413() {
    let shop = Shop::open().await;
    let app = Arc::new(shop.consumer().handle("events", record));
    let webhook = Webhook::new(app, "events").unwrap();
    let cut = map_request(async |request: Request| {
        let (head, _) = request.into_parts();
        let parts = [Ok(event("a")), Err(std::io::Error::from(std::io::ErrorKind::TimedOut))];
        Request::from_parts(head, Body::from_stream(futures_util::stream::iter(parts)))
    });
    let router = Router::new().route_service("/hook", webhook.clone()).layer(cut);
    let (address, _) = serve_router(router, std::future::pending()).await;
    let told = post(address, event("a")).await;
    assert_eq!((told.status, told.retry_after()), (503, Some(1)));

    let limited = map_request(async |request: Request| {
        let (head, body) = request.into_parts();
        Request::from_parts(head, Body::new(Limited::new(body, 3)))
    });
    let router = Router::new().route_service("/hook", webhook).layer(limited);
    let (address, _) = serve_router(router, std::future::pending()).await;
    assert_eq!(post(address, event("a")).await.status, 413);
    assert!(shop.is_untouched().await);
}

/// Only so many bodies are in memory: a request whose body is on its way has a place.
#[tokio::test]
async fn request_that_is_on_its_way_has_a_place() {
    let shop = Shop::open().await;
    let app = Arc::new(shop.consumer().handle("events", record));
    let address = serve(Webhook::new(app, "events").unwrap().concurrency(1)).await;
    let slow = begin(address, head(&[&format!("Content-Length: {}", event("a").len())]).as_bytes()).await.unwrap();
    until(async || post(address, event("b")).await.status == 503).await;
    drop(slow);
    until(async || post(address, event("b")).await.status == 200).await;
}
