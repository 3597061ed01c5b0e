#[idempotent(key = "order:{order_id}")]
async fn queue_fulfilment(&self, order: OrderPlaced, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    queue(order.order_id, tx).await
}
