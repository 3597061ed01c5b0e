//! The counters of `inboxed` as a test reads them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Counts what this thread counts, while `metrics::set_default_local_recorder(&counters)` is held. The test's runtime must
/// be of the current thread.
#[derive(Default)]
pub(crate) struct Counters(Mutex<HashMap<Key, Arc<AtomicU64>>>);

impl Counters {
    /// The sum of a counter over all series that have this label.
    pub(crate) fn sum(&self, name: &str, label: (&str, &str)) -> u64 {
        let counters = self.0.lock().unwrap();
        let labelled = |key: &Key| key.labels().any(|found| (found.key(), found.value()) == label);
        let series = counters.iter().filter(|(key, _)| key.name() == name && labelled(key));
        series.map(|(_, counter)| counter.load(Ordering::SeqCst)).sum()
    }
}

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(Arc::clone(self.0.lock().unwrap().entry(key.clone()).or_default()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}
