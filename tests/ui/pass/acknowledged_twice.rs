use inboxed::Committed;
use inboxed::broker::{Settlement, Settler};

async fn settle(settlers: Vec<impl Settler<Token = u64>>, committed: Committed<u64>) {
    if let Some(settler) = settlers.first() {
        settler.settle(vec![Settlement::Ack(committed)]).await;
    }
}

fn main() {}
