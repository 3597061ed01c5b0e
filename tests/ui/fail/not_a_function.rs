use inboxed::idempotent;

#[idempotent(key = "order:{order_id}")]
struct QueueFulfilment;

fn main() {
    let _ = QueueFulfilment;
}
