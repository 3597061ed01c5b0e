//! The brokers of `inboxed`, and webhooks, each behind the feature of its name. Use them through the facade crate `inboxed`.

mod broker;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "memory")]
pub mod memory;
#[cfg(feature = "nats")]
pub mod nats;
#[cfg(feature = "rabbitmq")]
pub mod rabbitmq;
#[cfg(feature = "sqs")]
pub mod sqs;

pub use broker::{Broker, BrokerPublisher, ConnectError};
