//! How often and how late a failed message comes again.

use std::time::Duration;

/// Bounded attempts with exponential backoff and jitter.
///
/// ```
/// use std::time::Duration;
/// use inboxed_runtime::RetryPolicy;
/// let policy = RetryPolicy::default().attempts(5).backoff(Duration::from_millis(100), Duration::from_secs(60));
/// assert!(policy.delay(1) <= Duration::from_millis(100));
/// assert!(policy.delay(40) <= Duration::from_secs(60));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    attempts: u32,
    first: Duration,
    most: Duration,
}

impl Default for RetryPolicy {
    /// Ten attempts, the first retry within a second, later ones within five minutes.
    fn default() -> Self {
        Self { attempts: 10, first: Duration::from_secs(1), most: Duration::from_mins(5) }
    }
}

impl RetryPolicy {
    /// How many failures of the body dead-letter the message; at least 1.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// The upper bound of the first delay, doubled with each failure, and the bound of that.
    pub fn backoff(mut self, first: Duration, most: Duration) -> Self {
        (self.first, self.most) = (first, most);
        self
    }

    /// A random delay after the given number of failures, between half of its bound and the bound.
    pub fn delay(&self, failures: u32) -> Duration {
        let doubled = self.first.saturating_mul(1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX));
        doubled.min(self.most).mul_f64(0.5 + fastrand::f64() / 2.0)
    }

    pub(crate) fn exhausted(&self, failures: u32) -> bool {
        failures >= self.attempts
    }
}
