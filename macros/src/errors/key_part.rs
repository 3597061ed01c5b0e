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
