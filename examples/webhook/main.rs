//! Deposits by webhook, signed as GitHub signs: `X-Hub-Signature-256: sha256=…`, an HMAC over the exact bytes.
//!
//! ```sh
//! WEBHOOK_SECRET=secret cargo run --example webhook --features http
//!
//! body='{"event_id":"evt-1","account":7,"cents":250}'
//! signature=$(printf %s "$body" | openssl dgst -sha256 -hmac secret -r | cut -d' ' -f1)
//! curl -i localhost:8080/hooks/deposits -H "X-Hub-Signature-256: sha256=$signature" -d "$body"
//! ```
//!
//! The first answer says `done`, each further one `duplicate`, and the account has its 250 cents once.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::get;
use hmac::{Hmac, KeyInit as _, Mac as _};
use inboxed::http::Webhook;
use inboxed::{Consumer, Inbox, idempotent};
use serde::Deserialize;
use sha2::Sha256;
use sqlx::SqliteConnection;

#[derive(Deserialize)]
struct Deposit {
    event_id: String,
    account: i64,
    cents: i64,
}

#[idempotent(key = "deposit:{event_id}")]
async fn book(deposit: Deposit, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    sqlx::query(
        "INSERT INTO balances VALUES (?, ?) ON CONFLICT (account) DO UPDATE SET cents = cents + excluded.cents",
    )
    .bind(deposit.account)
    .bind(deposit.cents)
    .execute(tx)
    .await?;
    println!("account {} gets {} cents", deposit.account, deposit.cents);
    Ok(())
}

/// Whether the sender has signed this body. `verify_slice` takes as long for each wrong signature.
fn genuine(secret: &[u8], head: &Parts, body: &[u8]) -> bool {
    let signature = head.headers.get("x-hub-signature-256").and_then(|value| value.to_str().ok());
    let Some(Ok(signature)) = signature.and_then(|value| value.strip_prefix("sha256=")).map(hex::decode) else {
        return false;
    };
    let Ok(mac) = Hmac::<Sha256>::new_from_slice(secret) else { return false };
    mac.chain_update(body).verify_slice(&signature).is_ok()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let secret = std::env::var("WEBHOOK_SECRET").map_err(|_| "set WEBHOOK_SECRET to what the sender signs with")?;
    let database = std::env::var("DATABASE_URL").unwrap_or_else(|_| "sqlite://deposits.sqlite".to_owned());
    let address = std::env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());

    let inbox = Inbox::connect(&database).await?;
    inbox.migrate().await?;
    sqlx::query("CREATE TABLE IF NOT EXISTS balances (account INTEGER PRIMARY KEY, cents INTEGER NOT NULL)")
        .execute(inbox.pool())
        .await?;
    let app = Arc::new(Consumer::new("bank", inbox).handle("deposits", book));

    let webhook =
        Webhook::new(Arc::clone(&app), "deposits")?.verify(move |head, body| genuine(secret.as_bytes(), head, body));
    let health = app.health();
    let ready = move || async move {
        if health.report().is_healthy() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
    };
    let router = Router::new().route_service("/hooks/deposits", webhook).route("/ready", get(ready));

    let listener = tokio::net::TcpListener::bind(&address).await?;
    println!("listening on {}", listener.local_addr()?);
    // SIGTERM and SIGINT end the consumer's run; the server watches its shutdown, and answers what has come in.
    let shutdown = app.shutdown();
    let server = axum::serve(listener, router).with_graceful_shutdown(async move { shutdown.begun().await });
    tokio::try_join!(async { server.await.map_err(Box::<dyn std::error::Error>::from) }, async {
        app.run_without_broker().await.map_err(Into::into)
    },)?;
    Ok(())
}
