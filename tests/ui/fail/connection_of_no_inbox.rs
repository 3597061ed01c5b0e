use inboxed::idempotent;
use serde::Deserialize;

#[derive(Deserialize)]
struct OrderPlaced {
    order_id: i64,
}

struct LedgerConnection {
    orders: Vec<i64>,
}

#[idempotent(key = "order:{order_id}")]
async fn queue_fulfilment(order: OrderPlaced, tx: &mut LedgerConnection) -> inboxed::Result<()> {
    tx.orders.push(order.order_id);
    Ok(())
}

fn main() {
    let _ = queue_fulfilment;
}
