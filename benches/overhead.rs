//! What the runtime itself costs a message: route, decode, key, the order's tasks and locks, with a store that does nothing.
//!
//! ```text
//! cargo bench --bench overhead --features testing
//! ```

use std::time::{Duration, Instant};

use inboxed::idempotent;
use inboxed::testing::{NoConnection, NoStore};
use serde::Deserialize;

const MESSAGES: u32 = 20_000;
const ROUNDS: usize = 7;

#[derive(Deserialize)]
struct OrderPlaced {
    order_id: u64,
    version: u32,
}

#[idempotent(key = "order:{order_id}:placed:v{version}")]
#[allow(clippy::unused_async, reason = "there is nothing to wait for without a database")]
async fn queue(order: OrderPlaced, _tx: &mut NoConnection) -> inboxed::Result<()> {
    std::hint::black_box(order.order_id);
    Ok(())
}

fn main() {
    // One thread, on which every allocation is counted.
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_time().build() {
        Ok(runtime) => runtime,
        Err(error) => return eprintln!("no runtime: {error}"),
    };
    let bodies = (0..MESSAGES).map(|n| format!(r#"{{"order_id":{n},"version":1}}"#)).collect::<Vec<_>>();
    let consumer = NoStore::start(NoStore::consumer("bench").handle("orders", queue));
    let mut times = Vec::with_capacity(ROUNDS);
    let mut allocations = 0.0;
    for _ in 0..ROUNDS {
        let bodies = bodies.clone();
        let mut time = Duration::ZERO;
        let counted = allocation_counter::measure(|| {
            runtime.block_on(async {
                let started_at = Instant::now();
                for body in bodies {
                    let _ = std::hint::black_box(consumer.deliver("orders", body, ()).await);
                }
                time = started_at.elapsed();
            });
        });
        times.push(time);
        allocations = u32::try_from(counted.count_total).map_or(f64::INFINITY, f64::from);
    }
    times.sort();
    let median = times[ROUNDS / 2].as_secs_f64() * 1e6 / f64::from(MESSAGES);
    let spread = times[ROUNDS - 1].abs_diff(times[0]).as_secs_f64() * 1e6 / f64::from(MESSAGES);
    println!("overhead {median:.2} µs a message (median of {ROUNDS} rounds, spread {spread:.2} µs)");
    println!("overhead {:.1} allocations a message", allocations / f64::from(MESSAGES));
}
