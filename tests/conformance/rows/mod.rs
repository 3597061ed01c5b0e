//! The rows, by what they are about.

pub(crate) mod basic;
pub(crate) mod capabilities;
#[cfg(feature = "testing")]
pub(crate) mod crashes;
pub(crate) mod failures;
pub(crate) mod groups;
pub(crate) mod leases;
pub(crate) mod order;
pub(crate) mod outages;
#[cfg(any(feature = "nats", feature = "rabbitmq", feature = "sqs"))]
pub(crate) mod processes;
pub(crate) mod refusals;
pub(crate) mod restarts;
pub(crate) mod shutdown;
