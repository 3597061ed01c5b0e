use inboxed::Committed;
use inboxed::broker::Settlement;

fn settle(committed: Committed<u64>) -> Settlement<u64> {
    Settlement::acknowledge(committed)
}

fn main() {
    let _ = settle;
}
