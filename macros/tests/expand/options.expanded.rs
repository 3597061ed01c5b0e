#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
struct queue_fulfilment;
impl queue_fulfilment {
    ///The handler's body alone, for tests: no claim stands in its way, and nothing is committed.
    #[allow(private_interfaces)]
    async fn effect(
        order: OrderPlaced,
        tx: &mut SqliteConnection,
    ) -> Result<(), sqlx::Error> {
        queue(order, tx).await
    }
}
#[automatically_derived]
impl<
    __State,
    __Decoder,
> ::shop::inbox::Handler<
    <SqliteConnection as ::shop::inbox::InboxConnection>::Db,
    __State,
    __Decoder,
> for queue_fulfilment
where
    __State: ::core::marker::Send + ::core::marker::Sync + 'static,
    __Decoder: ::shop::inbox::Decode<OrderPlaced>,
{
    const SPEC: ::shop::inbox::Spec = ::shop::inbox::Spec::new(
            "fulfilment",
            "{tenant.id}/order:{order_id}:v{0}",
        )
        .previous_key("order:{order_id}")
        .timeout(::core::time::Duration::from_millis(500u64))
        .retention(::core::time::Duration::from_millis(2592000000u64))
        .on_conflict(::shop::inbox::OnConflict::DeadLetter);
    fn prepare(
        &self,
        __inboxed_received: &::shop::inbox::Received,
        __inboxed_decoder: &__Decoder,
    ) -> ::core::result::Result<
        ::shop::inbox::__private::Prepared,
        ::shop::inbox::Refusal,
    > {
        ::shop::inbox::__private::prepare(
            __inboxed_received,
            __inboxed_decoder,
            |__inboxed_message: &OrderPlaced| ::core::result::Result::Ok(
                ::shop::inbox::Identity::with_previous(
                    {
                        let __inboxed_key = ::shop::inbox::KeyWriter::new();
                        let __inboxed_key = {
                            #[allow(non_camel_case_types)]
                            enum tenant_id {}
                            ::shop::inbox::__private::part::<
                                tenant_id,
                                _,
                            >(__inboxed_key, "tenant.id", &__inboxed_message.tenant.id)?
                        };
                        let __inboxed_key = __inboxed_key.literal("/order:");
                        let __inboxed_key = {
                            #[allow(non_camel_case_types)]
                            enum order_id {}
                            ::shop::inbox::__private::part::<
                                order_id,
                                _,
                            >(__inboxed_key, "order_id", &__inboxed_message.order_id)?
                        };
                        let __inboxed_key = __inboxed_key.literal(":v");
                        let __inboxed_key = {
                            #[allow(non_camel_case_types)]
                            enum _0 {}
                            ::shop::inbox::__private::part::<
                                _0,
                                _,
                            >(__inboxed_key, "0", &__inboxed_message.0)?
                        };
                        __inboxed_key.finish()
                    }?,
                    (|| -> ::core::result::Result<
                        ::shop::inbox::Key,
                        ::shop::inbox::KeyError,
                    > {
                        {
                            let __inboxed_key = ::shop::inbox::KeyWriter::new();
                            let __inboxed_key = __inboxed_key.literal("order:");
                            let __inboxed_key = {
                                #[allow(non_camel_case_types)]
                                enum order_id {}
                                ::shop::inbox::__private::part::<
                                    order_id,
                                    _,
                                >(__inboxed_key, "order_id", &__inboxed_message.order_id)?
                            };
                            __inboxed_key.finish()
                        }
                    })(),
                ),
            ),
        )
    }
    fn run<'__run>(
        &'__run self,
        __inboxed_message: ::shop::inbox::__private::AnyMessage,
        mut __inboxed_parts: ::shop::inbox::Parts<
            '__run,
            <SqliteConnection as ::shop::inbox::InboxConnection>::Db,
            __State,
        >,
    ) -> ::shop::inbox::__private::BoxFuture<
        '__run,
        ::core::result::Result<(), ::shop::inbox::Error>,
    > {
        ::shop::inbox::__private::body(async move {
            let __inboxed_result = Self::effect(
                    ::shop::inbox::__private::message::<OrderPlaced>(__inboxed_message)?,
                    ::shop::inbox::__private::transaction(&mut __inboxed_parts)?,
                )
                .await;
            ::shop::inbox::BodyResult::into_result(__inboxed_result)
        })
    }
}
