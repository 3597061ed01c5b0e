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
