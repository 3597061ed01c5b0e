use inboxed::broker::Settlement;

fn settle(token: u64) -> Settlement<u64> {
    Settlement::acknowledge(token)
}

fn main() {
    let _ = settle;
}
