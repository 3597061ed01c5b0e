async fn queue_fulfilment(
    &self,
    order: OrderPlaced,
    tx: &mut SqliteConnection,
) -> inboxed::Result<()> {
    queue(order.order_id, tx).await
}
::core::compile_error! {
    "a handler can't take `self`: a redelivery may run in another process, which has no such value\n\nhelp: move the function out of the `impl`, and take what it needs as `State<T>`"
}
