//! One request's way: read, verified, delivered, answered.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::{Method, Request};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use inboxed_runtime::{BoxError, Received};
use tokio::sync::OwnedSemaphorePermit;
use tower_service::Service;
use tracing::Instrument as _;

use super::answer::{self, Answer};
use super::{Hook, Webhook, head};

impl<B> Service<Request<B>> for Webhook
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<BoxError>,
{
    type Response = Answer;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let hook = Arc::clone(&self.0);
        Box::pin(async move {
            match hook.receive(request).await {
                Ok((received, place)) => Ok(hook.deliver(received, place).await),
                Err(refused) => Ok(refused),
            }
        })
    }
}

impl Hook {
    /// The message of a request, with its place among those that are handled; or its answer if it is refused: then nothing of it is
    /// stored.
    async fn receive<B>(&self, request: Request<B>) -> Result<(Received, OwnedSemaphorePermit), Answer>
    where
        B: Body,
        B::Error: Into<BoxError>,
    {
        if request.method() != Method::POST {
            return Err(answer::only_post());
        }
        if self.shutdown.has_begun() {
            return Err(answer::shutting_down());
        }
        if self.health.report().store.is_some() {
            return Err(answer::out_of_reach());
        }
        let (head, body) = request.into_parts();
        // What is declared too long isn't read at all.
        if body.size_hint().lower() > self.body_limit as u64 {
            return Err(answer::too_long(self.body_limit));
        }
        // Before the body is read: only so many are in memory.
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            tracing::warn!(source = %self.source, "more requests than may be handled at once");
            return Err(answer::busy());
        };
        let body = match Limited::new(body, self.body_limit).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if is_too_long(&*error) => return Err(answer::too_long(self.body_limit)),
            Err(error) => {
                tracing::debug!(source = %self.source, %error, "a request's body broke off");
                return Err(answer::broke_off());
            }
        };
        if self.verify.as_ref().is_some_and(|genuine| !genuine(&head, &body)) {
            tracing::warn!(source = %self.source, "refused a request whose signature isn't the sender's");
            return Err(answer::not_genuine());
        }
        let mut received = Received::new(Arc::clone(&self.source), body);
        received.headers = head::kept(&head.headers, &self.without);
        Ok((received, place))
    }

    /// Handles a message to its end, in a task of its own: the server drops this future when the client goes away, and a
    /// consumer's start isn't to be dropped either.
    async fn deliver(&self, received: Received, place: OwnedSemaphorePermit) -> Answer {
        let consumer = Arc::clone(&self.consumer);
        let delivering = async move {
            let _place = place;
            consumer.deliver(received).await
        };
        match tokio::spawn(delivering.in_current_span()).await {
            Ok(Ok(delivered)) => answer::to(delivered, self.dead_letters_as),
            Ok(Err(error)) => {
                tracing::error!(source = %self.source, %error, "a request's message can't be handled");
                answer::out_of_reach()
            }
            Err(error) => {
                tracing::error!(source = %self.source, %error, "a request's task ended early");
                answer::out_of_reach()
            }
        }
    }
}

/// Whether our limit, or that of a layer outside, was reached.
fn is_too_long(error: &(dyn std::error::Error + 'static)) -> bool {
    std::iter::successors(Some(error), |error| error.source()).any(<dyn std::error::Error>::is::<LengthLimitError>)
}
