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

    /// How many attempts a message has.
    pub(crate) fn most_attempts(&self) -> u32 {
        self.attempts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longest(policy: &RetryPolicy, failures: u32) -> Duration {
        (0..500).map(|_| policy.delay(failures)).max().unwrap_or_default()
    }

    #[test]
    fn delay_doubles_up_to_its_bound_and_never_overflows() {
        let (first, bound) = (Duration::from_millis(100), Duration::from_secs(5));
        let policy = RetryPolicy::default().backoff(first, bound);
        for (failures, upper) in [(0, 1), (1, 1), (2, 2), (3, 4), (6, 32), (7, 50), (32, 50), (33, 50), (u32::MAX, 50)]
        {
            let upper = first * upper;
            for _ in 0..500 {
                let delay = policy.delay(failures);
                assert!(upper / 2 <= delay && delay <= upper, "{failures}: {delay:?} of {upper:?}");
            }
            assert!(longest(&policy, failures) > upper * 9 / 10, "{failures}: no jitter");
        }
    }

    #[test]
    fn no_policy_is_without_an_end() {
        let none = RetryPolicy::default().attempts(0);
        assert!(none.exhausted(1));
        let three = RetryPolicy::default().attempts(3);
        assert_eq!([1, 2, 3, 4].map(|failures| three.exhausted(failures)), [false, false, true, true]);
    }
}
