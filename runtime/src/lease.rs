//! The lease of a delivery: kept alive while its message is here, and its loss told to the handler.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a delivery's lease was lost, for all who hold the delivery.
#[derive(Clone, Debug, Default)]
pub(crate) struct LeaseWatch(Arc<AtomicBool>);

impl LeaseWatch {
    pub(crate) fn lost(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn lose(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
