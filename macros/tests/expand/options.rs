#[idempotent(
    key = "{tenant.id}/order:{order_id}:v{0}",
    previous_key = "order:{order_id}",
    consumer = "fulfilment",
    retention = "30d",
    timeout = "500ms",
    on_conflict = "dead_letter",
    crate = ::shop::inbox
)]
async fn queue_fulfilment(order: OrderPlaced, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    queue(order, tx).await
}
