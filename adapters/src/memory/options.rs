//! How the broker behaves, and how it misbehaves on request.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use inboxed_runtime::Received;
use inboxed_runtime::broker::Capabilities;

use super::Memory;

/// The longest lease or retention: a moment beyond what the clock can hold would be a panic.
const FOREVER: Duration = Duration::from_hours(24 * 365 * 30);

/// Which acknowledgements are lost.
type LosesAck = Arc<dyn Fn(&Received) -> bool + Send + Sync>;

/// Sets up a [`Memory`]. Faults are drawn from the seed, so that a run can be repeated.
///
/// ```
/// use std::time::Duration;
/// use inboxed_adapters::memory::Memory;
///
/// let broker = Memory::builder()
///     .lease(Duration::from_secs(5))
///     .duplicates(0.05)
///     .lose_acks(0.02)
///     .reorder(16)
///     .seed(42)
///     .build();
/// # drop(broker);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    options: Options,
}

/// What a broker was set up with.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) lease: Duration,
    pub(super) retention: Duration,
    pub(super) replay: bool,
    pub(super) duplicates: f64,
    pub(super) reorder: usize,
    pub(super) seed: u64,
    lose_acks: f64,
    loses_ack: Option<LosesAck>,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            options: Options {
                lease: Duration::from_secs(30),
                retention: Duration::from_hours(24),
                replay: true,
                duplicates: 0.0,
                reorder: 1,
                seed: 0,
                lose_acks: 0.0,
                loses_ack: None,
            },
        }
    }

    /// How long a delivery stays with its consumer before it comes again, unless it is settled or extended: 30 s by
    /// default.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease.min(FOREVER);
        self
    }

    /// How long the broker keeps a message, handled or not: 24 hours by default. What is older is dropped, and counted in
    /// [`Counts::expired`](super::Counts::expired).
    pub fn retention(mut self, retention: Duration) -> Self {
        self.options.retention = retention.min(FOREVER);
        self
    }

    /// Keeps no message for groups that come later, so that memory holds only what isn't settled. The first group of a
    /// source still gets what was published before it.
    pub fn without_replay(mut self) -> Self {
        self.options.replay = false;
        self
    }

    /// Hands out this share of deliveries a second time, from 0 to 1. A copy of a message with an ordering key comes after
    /// the first is settled.
    pub fn duplicates(mut self, share: f64) -> Self {
        self.options.duplicates = share;
        self
    }

    /// Takes each delivery from the next `window` messages by chance. The order within an ordering key stays.
    pub fn reorder(mut self, window: usize) -> Self {
        self.options.reorder = window.max(1);
        self
    }

    /// Loses this share of acknowledgements, from 0 to 1: they are answered by `Lost`, and the message comes again at once,
    /// as after a cut connection. At 1 no message is ever done.
    pub fn lose_acks(mut self, share: f64) -> Self {
        self.options.lose_acks = share;
        self
    }

    /// Loses the acknowledgements of the deliveries that `lost` picks, as [`Builder::lose_acks`] does by chance.
    ///
    /// ```
    /// use inboxed_adapters::memory::Memory;
    /// let broker = Memory::builder().lose_ack_if(|delivery| delivery.delivery_count == 1).build();
    /// # drop(broker);
    /// ```
    pub fn lose_ack_if(mut self, lost: impl Fn(&Received) -> bool + Send + Sync + 'static) -> Self {
        self.options.loses_ack = Some(Arc::new(lost));
        self
    }

    /// Seeds the faults, 0 by default.
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.seed = seed;
        self
    }

    /// The broker.
    #[must_use]
    pub fn build(self) -> Memory {
        Memory::with_options(self.options)
    }
}

impl Options {
    /// Whether the acknowledgement of a delivery is lost.
    pub(super) fn loses_ack(&self, rng: &mut fastrand::Rng, received: impl FnOnce() -> Received) -> bool {
        rng.f64() < self.lose_acks || self.loses_ack.as_ref().is_some_and(|lost| lost(&received()))
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::default();
        capabilities.ordered = true;
        capabilities.groups = true;
        capabilities.lease = Some(self.lease);
        capabilities.delivery_count = true;
        capabilities.delayed_retry = true;
        capabilities.batch_ack = true;
        capabilities.replay = self.replay;
        capabilities.position = true;
        capabilities.retention = Some(self.retention);
        capabilities
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("lease", &self.lease)
            .field("retention", &self.retention)
            .field("replay", &self.replay)
            .field("duplicates", &self.duplicates)
            .field("reorder", &self.reorder)
            .field("seed", &self.seed)
            .field("lose_acks", &self.lose_acks)
            .field("loses_ack", &self.loses_ack.is_some())
            .finish()
    }
}
