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
