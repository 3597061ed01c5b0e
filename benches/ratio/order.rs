//! The messages.

use bytes::Bytes;
use serde::Deserialize;

use crate::contest::ACCOUNTS;

#[derive(Deserialize)]
pub(crate) struct OrderPlaced {
    pub(crate) order_id: i64,
    pub(crate) account: i32,
    pub(crate) amount: i64,
}

impl OrderPlaced {
    /// As the template of the handler writes it.
    pub(crate) fn key(&self) -> String {
        format!("order:{}:placed", self.order_id)
    }
}

/// How many orders a worker, or a round of pgbench's, may place before its numbers are another's.
pub(crate) const RANGE: i64 = 10_000_000;

/// Orders that nobody else places.
pub(crate) struct Orders {
    next: i64,
}

impl Orders {
    pub(crate) fn of_worker(worker: u32) -> Self {
        Self { next: i64::from(worker) * RANGE }
    }

    /// The body of the next one, each worth one.
    pub(crate) fn place(&mut self) -> Bytes {
        self.next += 1;
        let account = fastrand::u32(1..=ACCOUNTS);
        format!(r#"{{"order_id":{},"account":{account},"amount":1}}"#, self.next).into()
    }
}
