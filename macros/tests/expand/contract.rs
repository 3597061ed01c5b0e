#[derive(Event)]
#[event(key = "order:{order_id}:{type}")]
struct OrderPlaced<'a> {
    order_id: u64,
    r#type: Channel,
    note: &'a str,
}

#[derive(KeyPart)]
enum Channel {
    Online,
    #[key_part(rename = "phone")]
    ByPhone,
}

#[idempotent]
async fn queue_fulfilment(order: OrderPlaced, tx: &mut SqliteConnection) -> inboxed::Result<()> {
    queue(order.order_id, tx).await
}
