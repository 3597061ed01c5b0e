use inboxed::broker::Settlement;

fn settle(token: u64) -> Settlement<u64> {
    Settlement::Ack(token.into())
}

fn main() {
    let _ = settle;
}
