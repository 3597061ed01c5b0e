/// Queues an order for fulfilment.
#[cfg(feature = "fulfilment")]
#[deprecated = "the warehouse does it now"]
#[allow(clippy::too_many_lines)]
#[tracing::instrument(skip_all)]
#[idempotent(key = "order:{order_id}")]
pub(crate) async fn queue_fulfilment(
    OrderPlaced { order_id, .. }: OrderPlaced,
    tx: &mut SqliteConnection,
) -> inboxed::Result<()> {
    queue(order_id, tx).await
}
