#[idempotent(key = (&order.tenant, order.order_id))]
async fn queue_fulfilment(
    State(shop): State<Shop>,
    mut order: OrderPlaced,
    key: &Key,
    delivery: &Delivery,
    tx: &mut SqliteConnection,
) -> anyhow::Result<()> {
    order.shop = shop.name;
    queue(order, key, delivery.attempt(), tx).await
}
