#[allow(non_camel_case_types)]
#[derive(Clone, Copy, Debug)]
pub struct queue_fulfilment;
impl queue_fulfilment {
    ///The handler's body alone, for tests: no claim stands in its way, and nothing is committed.
    #[allow(private_interfaces)]
    pub async fn effect(
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
{
    const SPEC: ::inboxed::Spec = ::inboxed::Spec::new("", "");
    fn prepare(
        &self,
        _: &::inboxed::Received,
        _: &__Decoder,
    ) -> ::core::result::Result<::inboxed::__private::Prepared, ::inboxed::Refusal> {
        ::core::unreachable!()
    }
    fn run<'__run>(
        &'__run self,
        _: ::inboxed::__private::AnyMessage,
        _: ::inboxed::Parts<
            '__run,
            <SqliteConnection as ::inboxed::InboxConnection>::Db,
            __State,
        >,
    ) -> ::inboxed::__private::BoxFuture<
        '__run,
        ::core::result::Result<(), ::inboxed::Error>,
    > {
        ::core::unreachable!()
    }
}
::core::compile_error! {
    "`retries` is not an option of `#[idempotent]`\n\nhelp: the options are `key`, `consumer`, `retention`, `timeout`, `on_conflict` and `previous_key`"
}
::core::compile_error! {
    "the key has no part of the message: every message would count as the same one, and only the first would run\n\nhelp: put a field that tells messages apart into it, as in `key = \"order:{order_id}\"`"
}
