#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
struct queue_fulfilment;
impl queue_fulfilment {
    ///The handler's body alone, for tests: no claim stands in its way, and nothing is committed.
    #[allow(private_interfaces)]
    async fn effect(
        State(shop): State<Shop>,
        mut order: OrderPlaced,
        key: &Key,
        delivery: &Delivery,
        tx: &mut SqliteConnection,
    ) -> anyhow::Result<()> {
        order.shop = shop.name;
        queue(order, key, delivery.attempt(), tx).await
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
    State<
        Shop,
    >: for<'__part> ::inboxed::FromParts<
        '__part,
        <SqliteConnection as ::inboxed::InboxConnection>::Db,
        __State,
    >,
{
    const SPEC: ::inboxed::Spec = ::inboxed::Spec::new(
        "queue_fulfilment",
        "(&order.tenant, order.order_id)",
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
                        #[allow(unused_variables)]
                        let order = __inboxed_message;
                        {
                            let __inboxed_key = ::inboxed::KeyWriter::new();
                            let __inboxed_key = {
                                #[allow(non_camel_case_types)]
                                enum tenant {}
                                ::inboxed::__private::part::<
                                    tenant,
                                    _,
                                >(__inboxed_key, "order.tenant", &&order.tenant)?
                            };
                            let __inboxed_key = __inboxed_key.literal(":");
                            let __inboxed_key = {
                                #[allow(non_camel_case_types)]
                                enum order_id {}
                                ::inboxed::__private::part::<
                                    order_id,
                                    _,
                                >(__inboxed_key, "order.order_id", &order.order_id)?
                            };
                            __inboxed_key.finish()
                        }
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
                    <State<
                        Shop,
                    > as ::inboxed::FromParts<
                        '_,
                        _,
                        _,
                    >>::from_parts(&mut __inboxed_parts)?,
                    ::inboxed::__private::message::<OrderPlaced>(__inboxed_message)?,
                    <&Key as ::inboxed::FromParts<
                        '_,
                        _,
                        _,
                    >>::from_parts(&mut __inboxed_parts)?,
                    <&Delivery as ::inboxed::FromParts<
                        '_,
                        _,
                        _,
                    >>::from_parts(&mut __inboxed_parts)?,
                    ::inboxed::__private::transaction(&mut __inboxed_parts)?,
                )
                .await;
            ::inboxed::BodyResult::into_result(__inboxed_result)
        })
    }
}
