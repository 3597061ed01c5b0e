#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
struct queue_fulfilment;
impl queue_fulfilment {
    ///The handler's body alone, for tests: no claim stands in its way, and nothing is committed.
    #[allow(private_interfaces)]
    async fn effect(
        order: OrderPlaced,
        tx: &mut SqliteConnection,
    ) -> inboxed::Result<()> {
        queue(order.order_id, tx).await
    }
}
#[automatically_derived]
impl<
    __State,
    __Decoder,
> ::inboxed::Handler<
    <SqliteConnection as ::inboxed::InboxConnection>::Db,
    __State,
    __Decoder,
> for queue_fulfilment
where
    __State: ::core::marker::Send + ::core::marker::Sync + 'static,
    __Decoder: ::inboxed::Decode<OrderPlaced>,
{
    const SPEC: ::inboxed::Spec = ::inboxed::Spec::new(
        "queue_fulfilment",
        "order:{order_id}",
    );
    fn prepare(
        &self,
        __inboxed_received: &::inboxed::Received,
        __inboxed_decoder: &__Decoder,
    ) -> ::core::result::Result<::inboxed::__private::Prepared, ::inboxed::Refusal> {
        ::inboxed::__private::prepare(
            __inboxed_received,
            __inboxed_decoder,
            |__inboxed_message: &OrderPlaced| ::core::result::Result::Ok(
                ::inboxed::Identity::key(
                    {
                        let __inboxed_key = ::inboxed::KeyWriter::new();
                        let __inboxed_key = __inboxed_key.literal("order:");
                        let __inboxed_key = {
                            #[allow(non_camel_case_types)]
                            enum order_id {}
                            ::inboxed::__private::part::<
                                order_id,
                                _,
                            >(__inboxed_key, "order_id", &__inboxed_message.order_id)?
                        };
                        __inboxed_key.finish()
                    }?,
                ),
            ),
        )
    }
    fn run<'__run>(
        &'__run self,
        __inboxed_message: ::inboxed::__private::AnyMessage,
        mut __inboxed_parts: ::inboxed::Parts<
            '__run,
            <SqliteConnection as ::inboxed::InboxConnection>::Db,
            __State,
        >,
    ) -> ::inboxed::__private::BoxFuture<
        '__run,
        ::core::result::Result<(), ::inboxed::Error>,
    > {
        ::inboxed::__private::body(async move {
            let __inboxed_result = Self::effect(
                    ::inboxed::__private::message::<OrderPlaced>(__inboxed_message)?,
                    ::inboxed::__private::transaction(&mut __inboxed_parts)?,
                )
                .await;
            ::inboxed::BodyResult::into_result(__inboxed_result)
        })
    }
}
