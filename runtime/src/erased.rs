//! Adapters without their types, so that the pipeline is compiled once for each database.

use std::any::Any;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::broker::{Lease, Settled, Settlement, Settler};

/// A settlement token of any adapter.
#[derive(Clone, Debug)]
pub(crate) struct Token(Arc<dyn Any + Send + Sync>);

impl Token {
    pub(crate) fn new<T: Send + Sync + 'static>(token: T) -> Self {
        Self(Arc::new(token))
    }

    fn get<T: Clone + 'static>(&self) -> Option<T> {
        self.0.downcast_ref().cloned()
    }
}

/// A settler of any adapter.
pub(crate) trait AnySettler: Send + Sync {
    fn settle(&self, settlements: Vec<Settlement<Token>>) -> BoxFuture<'_, Vec<Settled>>;

    fn extend(&self, tokens: Vec<Token>) -> BoxFuture<'_, Vec<Lease>>;
}

/// An adapter's settler, to be given its own tokens only.
pub(crate) struct Erased<S>(pub S);

impl<S: Settler> AnySettler for Erased<S> {
    fn settle(&self, settlements: Vec<Settlement<Token>>) -> BoxFuture<'_, Vec<Settled>> {
        let own = settlements
            .into_iter()
            .filter_map(|settlement| {
                let token = settlement.token().get::<S::Token>()?;
                Some(settlement.map(|_| token))
            })
            .collect();
        Box::pin(self.0.settle(own))
    }

    fn extend(&self, tokens: Vec<Token>) -> BoxFuture<'_, Vec<Lease>> {
        Box::pin(async move {
            let own = tokens.iter().filter_map(Token::get::<S::Token>).collect::<Vec<_>>();
            self.0.extend(&own.iter().collect::<Vec<_>>()).await
        })
    }
}
