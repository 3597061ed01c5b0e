//! The text of every compile error: what is wrong, why a redelivery breaks it, and what to write instead.

use proc_macro2::TokenStream;
use quote::ToTokens;
use syn::Error;

/// Errors that are reported together, since each mistake is worth its own line.
#[derive(Debug, Default)]
pub(crate) struct Errors(Option<Error>);

impl Errors {
    pub(crate) fn push(&mut self, error: Error) {
        match &mut self.0 {
            Some(errors) => errors.combine(error),
            None => self.0 = Some(error),
        }
    }

    /// Keeps the error of a result, and gives its value.
    pub(crate) fn keep<T>(&mut self, result: Result<T, Error>) -> Option<T> {
        result.map_err(|error| self.push(error)).ok()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The errors as `compile_error!` items.
    pub(crate) fn into_tokens(self) -> TokenStream {
        self.0.map(|error| error.to_compile_error()).unwrap_or_default()
    }
}

/// An error at the whole of these tokens, with its cure.
pub(crate) fn error(at: impl ToTokens, what: impl AsRef<str>, help: impl AsRef<str>) -> Error {
    Error::new_spanned(at, text(what.as_ref(), help.as_ref()))
}

fn text(what: &str, help: &str) -> String {
    format!("{what}\n\nhelp: {help}")
}

pub(crate) mod options {
    //! Mistakes in the attribute's options.

    use super::{Error, ToTokens, error};
    use proc_macro2::Ident;

    pub(crate) fn unknown(option: &Ident) -> Error {
        error(
            option,
            format!("`{option}` is not an option of `#[idempotent]`"),
            "the options are `key`, `consumer`, `retention`, `timeout`, `on_conflict` and `previous_key`",
        )
    }

    pub(crate) fn repeated(option: &Ident) -> Error {
        error(
            option,
            format!("the option `{option}` is given twice, and only one of the two could hold"),
            format!("keep one `{option} = …`"),
        )
    }

    pub(crate) fn no_keyword(at: impl ToTokens) -> Error {
        error(
            at,
            "an option of `#[idempotent]` needs its name",
            "name it, as in `#[idempotent(key = \"order:{order_id}\")]`",
        )
    }

    pub(crate) fn no_value(option: &Ident) -> Error {
        error(option, format!("the option `{option}` has no value"), format!("write `{option} = …`"))
    }

    pub(crate) fn not_text(at: impl ToTokens, option: &str) -> Error {
        error(at, format!("`{option}` takes a string literal"), format!("write `{option} = \"…\"`"))
    }

    pub(crate) fn duration(at: impl ToTokens, option: &str) -> Error {
        error(
            at,
            format!("`{option}` is not a duration above zero: it needs a whole number and a unit"),
            format!("write it with `ms`, `s`, `m`, `h` or `d`, as in `{option} = \"30s\"`"),
        )
    }

    pub(crate) fn on_conflict(at: impl ToTokens) -> Error {
        error(
            at,
            "`on_conflict` says what becomes of a message whose key was committed with another payload",
            "write `on_conflict = \"acknowledge\"` (log it and go on) or `on_conflict = \"dead_letter\"` (keep it for \
             somebody to look at)",
        )
    }

    pub(crate) fn consumer(at: impl ToTokens) -> Error {
        error(
            at,
            "a consumer's name stands in every row of the inbox: 1 to 100 of `A-Z a-z 0-9 - . _`",
            "write a plain name, as in `consumer = \"queue_fulfilment\"`",
        )
    }

    pub(crate) fn same_previous_key(at: impl ToTokens) -> Error {
        error(
            at,
            "`previous_key` is the same as `key`, so there is nothing to claim under the old one",
            "remove `previous_key`, or write the key as it was before the change",
        )
    }
}

pub(crate) mod function {
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
}

pub(crate) mod key {
    //! Mistakes in a key.

    use super::{Error, ToTokens, error};

    pub(crate) fn empty(at: impl ToTokens) -> Error {
        error(
            at,
            "the key is empty: every message would count as the same one, and only the first would run",
            "name what makes two deliveries the same message, as in `key = \"order:{order_id}\"`",
        )
    }

    pub(crate) fn constant(at: impl ToTokens) -> Error {
        error(
            at,
            "the key has no part of the message: every message would count as the same one, and only the first would run",
            "put a field that tells messages apart into it, as in `key = \"order:{order_id}\"`",
        )
    }

    pub(crate) fn ambiguous(at: impl ToTokens, first: &str, second: &str) -> Error {
        error(
            at,
            format!(
                "the key runs `{{{first}}}` and `{{{second}}}` together: two messages could have the same key, as \
                 (\"a\", \"bc\") and (\"ab\", \"c\") have, and the second would be dropped as a duplicate"
            ),
            format!("put a `:` or a `/` between them: `{{{first}}}:{{{second}}}`"),
        )
    }

    pub(crate) fn alphabet(at: impl ToTokens, found: char) -> Error {
        error(
            at,
            format!(
                "{found:?} can't stand in a key: databases differ in case, padding and collation, and keys are the \
                 same bytes on all of them"
            ),
            "use `A-Z a-z 0-9 - . _ ~ : /` around the parts; what is inside a part is encoded",
        )
    }

    pub(crate) fn open_brace(at: impl ToTokens) -> Error {
        error(at, "a `{` or `}` of the key has no partner", "write a part as `{order_id}`")
    }

    pub(crate) fn no_field(at: impl ToTokens, found: &str) -> Error {
        error(
            at,
            format!("`{{{found}}}` is not a field of the message"),
            "a part is a field, `{order_id}`, a field of a field, `{customer.id}`, or a position, `{0}`",
        )
    }

    pub(crate) fn format_options(at: impl ToTokens, found: &str) -> Error {
        let field = found.split(':').next().unwrap_or_default();
        error(
            at,
            format!("`{{{found}}}` has format options, and a part of a key has exactly one spelling"),
            format!("write `{{{field}}}`"),
        )
    }

    pub(crate) fn no_template(at: impl ToTokens) -> Error {
        error(at, "a message's key is a template over its fields", "write `#[event(key = \"order:{order_id}\")]`")
    }

    pub(crate) fn closure(at: impl ToTokens) -> Error {
        error(
            at,
            "the key is an expression over the message parameter, not a closure",
            "write the expression alone, as in `key = (&order.tenant, order.id)`",
        )
    }

    pub(crate) fn other_parameter(at: impl ToTokens, name: &str) -> Error {
        error(
            at,
            format!(
                "the key reads `{name}`, which is not part of the message: it may differ when the message comes again, \
                 and the claim would not be found"
            ),
            "use the message's own fields only",
        )
    }

    pub(crate) fn delivery(at: impl ToTokens, name: &str) -> Error {
        error(
            at,
            format!(
                "the key reads `{name}`, which belongs to one delivery: the broker's message id, receipt handle, \
                 delivery tag and counts are new when the message comes again, and the effect would be repeated"
            ),
            "use what the producer put into the message and repeats when it sends again, as `{order_id}`",
        )
    }

    pub(crate) fn unstable(at: impl ToTokens, what: &str, why: &str) -> Error {
        error(
            at,
            format!(
                "`{what}` {why} on each delivery: a redelivered message would have a new key, and its effect would be \
                 repeated"
            ),
            "use what the producer put into the message and repeats when it sends again, as `{order_id}`",
        )
    }
}

pub(crate) mod event {
    //! Mistakes in `#[derive(Event)]`.

    use super::{Error, ToTokens, error};

    pub(crate) fn not_a_struct(at: impl ToTokens) -> Error {
        error(
            at,
            "a message's key is made of its fields, and an enum has none that every variant shares",
            "derive `Event` on a struct, with the enum as one of its fields",
        )
    }

    pub(crate) fn no_key(at: impl ToTokens) -> Error {
        error(
            at,
            "the message names no key, so a redelivery can't be told from a new message",
            "add `#[event(key = \"order:{order_id}\")]` below the derive",
        )
    }

    pub(crate) fn unknown_field(at: impl ToTokens, found: &str, known: &[String]) -> Error {
        let known = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        error(
            at,
            format!("the message has no field `{found}`, and a key is made of the message's fields"),
            format!("its fields are {known}"),
        )
    }

    pub(crate) fn serde(at: impl ToTokens, field: &str, attribute: &str) -> Error {
        error(
            at,
            format!(
                "serde's `{attribute}` fills the key part `{field}` in when a message lacks it: all messages without \
                 it would count as the same one, and only the first would run"
            ),
            format!("remove `{attribute}`, so that a message without `{field}` is refused and kept as a dead letter"),
        )
    }
}

pub(crate) mod key_part {
    //! Mistakes in `#[derive(KeyPart)]`.

    use super::{Error, ToTokens, error};

    pub(crate) fn shape(at: impl ToTokens) -> Error {
        error(
            at,
            "only a type around one value, or an enum without fields, has one obvious spelling in a key",
            "name the fields in the key itself, as in `key = \"{tenant.region}:{tenant.id}\"`",
        )
    }

    pub(crate) fn empty(at: impl ToTokens) -> Error {
        error(
            at,
            "an empty part tells no messages apart",
            "give the variant a text, as in `#[key_part(rename = \"placed\")]`",
        )
    }

    pub(crate) fn same_text(at: impl ToTokens, text: &str) -> Error {
        error(
            at,
            format!("two variants are `{text}` in a key, so their messages would count as the same one"),
            "give each variant a text of its own",
        )
    }

    pub(crate) fn unknown(at: impl ToTokens) -> Error {
        error(at, "this is not an option of `#[key_part]`", "write `#[key_part(rename = \"placed\")]` on a variant")
    }
}
