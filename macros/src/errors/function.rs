//! Mistakes in the function under the attribute.

use super::{Error, ToTokens, error};

pub(crate) fn not_a_function(at: impl ToTokens) -> Error {
    error(
        at,
        "`#[idempotent]` makes a message handler of an `async fn`, and this isn't a function",
        "put it on `async fn name(message: Message, tx: &mut SqliteConnection) -> inboxed::Result<()>`",
    )
}

pub(crate) fn not_async(at: impl ToTokens) -> Error {
    error(
        at,
        "a handler writes through its transaction, and every such write is awaited: the function must be `async`",
        "write `async fn`",
    )
}

pub(crate) fn qualified(at: impl ToTokens) -> Error {
    error(
        at,
        "a handler is called by the inbox, which knows no `const`, `unsafe`, `extern` or variadic functions",
        "write a plain `async fn`, and call the other from it",
    )
}

pub(crate) fn receiver(at: impl ToTokens) -> Error {
    error(
        at,
        "a handler can't take `self`: a redelivery may run in another process, which has no such value",
        "move the function out of the `impl`, and take what it needs as `State<T>`",
    )
}

pub(crate) fn parameter_named_like_handler(at: impl ToTokens) -> Error {
    error(
        at,
        "the handler becomes a struct of its name, so a parameter of that name is read as a pattern of that struct",
        "name one of them otherwise; if the handler is in production, keep its history by `consumer = \"…\"`",
    )
}

pub(crate) fn generics(at: impl ToTokens) -> Error {
    error(
        at,
        "a handler can't be generic: its name is registered as one consumer, with one message type and one key",
        "write one handler for each message type, and let them share a generic function",
    )
}

pub(crate) fn no_message(at: impl ToTokens) -> Error {
    error(
        at,
        "a handler needs a message: its first parameter taken by value, from which the key is derived",
        "add it, as in `async fn name(order: OrderPlaced, tx: &mut SqliteConnection)`",
    )
}

pub(crate) fn message_list(at: impl ToTokens) -> Error {
    error(
        at,
        "a handler takes one message, since each has a key and a claim of its own",
        "take the message itself, as in `order: OrderPlaced`",
    )
}

pub(crate) fn no_transaction(at: impl ToTokens) -> Error {
    error(
        at,
        "the handler doesn't take the inbox's transaction, so its effect can't commit together with the claim: a \
         crash between the two would lose the effect or repeat it",
        "add the parameter `tx: &mut SqliteConnection` (the connection of the inbox's database), and write \
         through it",
    )
}

pub(crate) fn second_transaction(at: impl ToTokens) -> Error {
    error(
        at,
        "the inbox opens one transaction for a message, and an earlier parameter already takes it",
        "remove this parameter, and pass the first on as `&mut *tx`",
    )
}

pub(crate) fn pool(at: impl ToTokens) -> Error {
    error(
        at,
        "a pool hands out other connections than the claim's: what is written through it stays when the claim \
         rolls back, and is written again on redelivery",
        "take the inbox's transaction, `tx: &mut SqliteConnection` (the connection of the inbox's database)",
    )
}

pub(crate) fn sqlx_transaction(at: impl ToTokens) -> Error {
    error(
        at,
        "the inbox commits, after the effect and together with the claim, so a handler doesn't own its transaction",
        "take the connection that the transaction is open on, `tx: &mut SqliteConnection`; `tx.begin()` inside the \
         body is a savepoint",
    )
}

pub(crate) fn no_result(at: impl ToTokens) -> Error {
    error(
        at,
        "a handler returns a result: without one a failure would be committed and acknowledged as done",
        "write `-> inboxed::Result<()>`, and end the body with `Ok(())`",
    )
}
