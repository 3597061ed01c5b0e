//! Adapters without their types, so that the pipeline is compiled once for each database.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;

use crate::broker::{
    BrokerError, Capabilities, Incoming, Lease, Settled, Settlement, Settler, Source, Transport, Wanted,
};
use crate::finding::Finding;

/// A settlement token of any adapter.
#[derive(Clone, Debug)]
pub struct Token(Arc<dyn Any + Send + Sync>);

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

/// Any adapter's transport behind one type, for a broker that is chosen at run time. Its tokens are of one type too, so that
/// no proof has to be taken apart on the way.
#[derive(Clone)]
pub struct AnyTransport(Arc<dyn OpensAny>);

impl AnyTransport {
    /// This transport without its type.
    pub fn new(transport: impl Transport) -> Self {
        Self(Arc::new(transport))
    }
}

impl fmt::Debug for AnyTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyTransport").field(&self.0.system()).finish()
    }
}

impl Transport for AnyTransport {
    type Source = AnySource;

    fn system(&self) -> &'static str {
        self.0.system()
    }

    async fn open(&self, name: &str, wanted: &Wanted) -> Result<AnySource, BrokerError> {
        self.0.open(name, wanted).await
    }

    async fn create(&self, name: &str, wanted: &Wanted) -> Result<Vec<String>, BrokerError> {
        self.0.create(name, wanted).await
    }
}

trait OpensAny: Send + Sync {
    fn system(&self) -> &'static str;

    fn open<'a>(&'a self, name: &'a str, wanted: &'a Wanted) -> BoxFuture<'a, Result<AnySource, BrokerError>>;

    fn create<'a>(&'a self, name: &'a str, wanted: &'a Wanted) -> BoxFuture<'a, Result<Vec<String>, BrokerError>>;
}

impl<T: Transport> OpensAny for T {
    fn system(&self) -> &'static str {
        Transport::system(self)
    }

    fn open<'a>(&'a self, name: &'a str, wanted: &'a Wanted) -> BoxFuture<'a, Result<AnySource, BrokerError>> {
        Box::pin(async move { Ok(AnySource(Box::new(Transport::open(self, name, wanted).await?))) })
    }

    fn create<'a>(&'a self, name: &'a str, wanted: &'a Wanted) -> BoxFuture<'a, Result<Vec<String>, BrokerError>> {
        Box::pin(Transport::create(self, name, wanted))
    }
}

/// Any adapter's source; see [`AnyTransport`].
pub struct AnySource(Box<dyn ReceivesAny>);

impl fmt::Debug for AnySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnySource").finish_non_exhaustive()
    }
}

impl Source for AnySource {
    type Token = Token;
    type Settler = SharedSettler;

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn findings(&self) -> Vec<Finding> {
        self.0.findings()
    }

    fn settler(&self) -> SharedSettler {
        self.0.settler()
    }

    async fn receive(&mut self, free: usize) -> Result<Vec<Incoming<Token>>, BrokerError> {
        self.0.receive(free).await
    }
}

trait ReceivesAny: Send {
    fn capabilities(&self) -> Capabilities;

    fn findings(&self) -> Vec<Finding>;

    fn settler(&self) -> SharedSettler;

    fn receive(&mut self, free: usize) -> BoxFuture<'_, Result<Vec<Incoming<Token>>, BrokerError>>;
}

impl<S: Source> ReceivesAny for S {
    fn capabilities(&self) -> Capabilities {
        Source::capabilities(self)
    }

    fn findings(&self) -> Vec<Finding> {
        Source::findings(self)
    }

    fn settler(&self) -> SharedSettler {
        SharedSettler(Arc::new(Erased(Source::settler(self))))
    }

    fn receive(&mut self, free: usize) -> BoxFuture<'_, Result<Vec<Incoming<Token>>, BrokerError>> {
        Box::pin(async move {
            let erase =
                |Incoming { received, token, leased_at }| Incoming { received, token: Token::new(token), leased_at };
            Ok(Source::receive(self, free).await?.into_iter().map(erase).collect())
        })
    }
}

/// Any adapter's settler; see [`AnyTransport`].
#[derive(Clone)]
pub struct SharedSettler(Arc<dyn AnySettler>);

impl fmt::Debug for SharedSettler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedSettler").finish_non_exhaustive()
    }
}

impl Settler for SharedSettler {
    type Token = Token;

    async fn settle(&self, settlements: Vec<Settlement<Token>>) -> Vec<Settled> {
        self.0.settle(settlements).await
    }

    async fn extend(&self, tokens: &[&Token]) -> Vec<Lease> {
        self.0.extend(tokens.iter().map(|token| (*token).clone()).collect()).await
    }
}
