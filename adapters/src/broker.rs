//! The broker that a URL names, among the adapters that are compiled in.

use inboxed_runtime::broker::{AnySource, AnyTransport, BrokerError, Transport, Wanted};

/// The features that stand for a broker, and the schemes of their URLs.
const SCHEMES: [(&str, &str, bool); 4] = [
    ("memory", "memory", cfg!(feature = "memory")),
    ("nats", "nats", cfg!(feature = "nats")),
    ("tls", "nats", cfg!(feature = "nats")),
    ("sqs", "sqs", cfg!(feature = "sqs")),
];

/// A broker that is chosen by a URL when the program runs: `memory://`, `nats://localhost:4222`, `tls://user:password@host`.
///
/// Each adapter has a type of its own too, with more to set up.
///
/// ```
/// # #[cfg(feature = "memory")]
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use inboxed_adapters::Broker;
///
/// let broker = Broker::connect("memory://").await?;
/// // app.run(broker).await?;
/// # drop(broker);
/// # Ok::<_, inboxed_adapters::ConnectError>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Broker(AnyTransport);

/// Why a URL gives no broker. The URL isn't repeated: it may hold a password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// It isn't one.
    #[error("the broker's URL has no scheme: write it as `nats://HOST` or `memory://`")]
    NoScheme,
    /// Its broker isn't compiled in.
    #[error("`{scheme}://` needs the feature `{feature}` of `inboxed`; compiled in are {available}")]
    FeatureOff {
        /// What the URL begins with.
        scheme: String,
        /// The feature to turn on.
        feature: &'static str,
        /// The schemes that will do.
        available: String,
    },
    /// No adapter has this scheme.
    #[error("no broker has the scheme `{scheme}://`; compiled in are {available}")]
    UnknownScheme {
        /// What the URL begins with.
        scheme: String,
        /// The schemes that will do.
        available: String,
    },
    /// NATS can't be reached, or refuses.
    #[cfg(feature = "nats")]
    #[error(transparent)]
    Nats(#[from] crate::nats::NatsError),
    /// What SQS is to be reached by is incomplete, or can't be used.
    #[cfg(feature = "sqs")]
    #[error(transparent)]
    Sqs(#[from] crate::sqs::SqsError),
}

impl Broker {
    /// The broker of this URL, connected.
    ///
    /// # Errors
    /// [`ConnectError`], which names the feature that a scheme needs.
    #[allow(clippy::unused_async, reason = "some brokers are connected to")]
    pub async fn connect(url: &str) -> Result<Self, ConnectError> {
        let (scheme, _) = url.split_once("://").ok_or(ConnectError::NoScheme)?;
        match scheme {
            #[cfg(feature = "memory")]
            "memory" => Ok(Self::from_transport(crate::memory::Memory::new())),
            #[cfg(feature = "nats")]
            "nats" | "tls" => Ok(Self::from_transport(crate::nats::Nats::connect(url).await?)),
            #[cfg(feature = "sqs")]
            "sqs" => Ok(Self::from_transport(crate::sqs::Sqs::new(url)?)),
            _ => Err(unavailable(scheme)),
        }
    }

    /// The same type for a broker that was set up by hand.
    pub fn from_transport(transport: impl Transport) -> Self {
        Self(AnyTransport::new(transport))
    }
}

fn unavailable(scheme: &str) -> ConnectError {
    let available = SCHEMES.iter().filter(|(.., on)| *on).map(|(scheme, ..)| format!("`{scheme}://`"));
    let available = match available.collect::<Vec<_>>() {
        none if none.is_empty() => "none".to_owned(),
        some => some.join(", "),
    };
    let scheme = scheme.to_owned();
    match SCHEMES.iter().find(|(known, ..)| *known == scheme) {
        Some((_, feature, _)) => ConnectError::FeatureOff { scheme, feature, available },
        None => ConnectError::UnknownScheme { scheme, available },
    }
}

impl Transport for Broker {
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

#[cfg(test)]
mod tests {
    use super::*;

    async fn refusal(url: &str) -> String {
        Broker::connect(url).await.unwrap_err().to_string()
    }

    #[tokio::test]
    async fn url_that_names_no_broker_is_refused_with_what_would_do() {
        assert!(refusal("localhost:4222").await.contains("nats://HOST"));
        let unknown = refusal("kafka://me:s3cret@host").await;
        assert!(unknown.contains("`kafka://`") && !unknown.contains("s3cret"), "{unknown}");
        for (scheme, _, on) in SCHEMES {
            assert_eq!(unknown.contains(&format!("`{scheme}://`")), on, "{unknown}");
        }
    }

    #[test]
    fn scheme_whose_feature_is_off_names_the_feature() {
        for (scheme, feature, _) in SCHEMES {
            let error = unavailable(scheme).to_string();
            assert!(error.contains(&format!("`{scheme}://` needs the feature `{feature}`")), "{error}");
        }
    }

    #[cfg(feature = "nats")]
    #[tokio::test]
    async fn server_that_is_not_there_is_named_without_its_password() {
        // The port of a listener that is gone.
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let refused = refusal(&format!("nats://me:s3cret@127.0.0.1:{port}")).await;
        assert!(refused.contains(&format!("127.0.0.1:{port}")) && !refused.contains("s3cret"), "{refused}");
    }
}
