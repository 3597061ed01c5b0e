//! A server of webhooks on a port of its own.

use std::net::SocketAddr;

use axum::Router;
use inboxed::http::Webhook;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Serves the webhook at `/hook` until the test's end.
pub(crate) async fn serve(webhook: Webhook) -> SocketAddr {
    serve_until(webhook, std::future::pending()).await.0
}

/// Serves the webhook until the future completes, and then answers what has come in.
pub(crate) async fn serve_until(
    webhook: Webhook,
    until: impl Future<Output = ()> + Send + 'static,
) -> (SocketAddr, JoinHandle<()>) {
    serve_router(Router::new().route_service("/hook", webhook), until).await
}

pub(crate) async fn serve_router(
    router: Router,
    until: impl Future<Output = ()> + Send + 'static,
) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = axum::serve(listener, router).with_graceful_shutdown(until);
    (address, tokio::spawn(async move { server.await.unwrap() }))
}
