//! The sender's signature: HMAC over the exact bytes, before anything is made of them.

use std::sync::Arc;

use axum::http::request::Parts;
use hmac::{Hmac, KeyInit as _, Mac as _};
use inboxed::http::Webhook;
use sha2::Sha256;

use super::{Shop, record};
use crate::client::post_with;
use crate::common::{event, within};
use crate::server::serve;

fn mac(body: &[u8]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(b"s3cret").unwrap().chain_update(body)
}

fn signature(body: &str) -> String {
    format!("X-Signature: {}", hex::encode(mac(body.as_bytes()).finalize().into_bytes()))
}

fn genuine(head: &Parts, body: &[u8]) -> bool {
    let signature = head.headers.get("x-signature").and_then(|value| hex::decode(value).ok());
    signature.is_some_and(|signature| mac(body).verify_slice(&signature).is_ok())
}

#[tokio::test]
async fn only_what_the_sender_has_signed_is_handled_or_stored() {
    let shop = Shop::open().await;
    let app = Arc::new(shop.consumer().handle("events", record));
    let address = serve(Webhook::new(app, "events").unwrap().verify(genuine)).await;
    let send = async |headers: &[&str], body: &str| within(post_with(address, headers, body)).await.unwrap();

    let message = event("a");
    let others = [signature(&event("b")), signature(&format!("{message} ")), "X-Signature: 00".to_owned()];
    for headers in others.iter().map(|other| vec![other.as_str()]).chain([vec![], vec!["X-Signature: no hex"]]) {
        for body in [message.as_str(), "{not json"] {
            assert_eq!(send(&headers, body).await.status, 401, "{headers:?} {body}");
        }
    }
    assert!(shop.is_untouched().await);

    assert_eq!(send(&[&signature(&message)], &message).await.text, "done");
    assert_eq!(send(&[&signature("{")], "{").await.status, 400);
}
