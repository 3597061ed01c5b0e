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
