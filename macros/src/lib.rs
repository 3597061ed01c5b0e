//! The attribute and derives of `inboxed`. Use them through the facade crate, where they are documented.

mod args;
mod errors;
mod event;
mod expand;
mod expression;
mod idempotent;
mod key;
mod key_part;
mod model;
mod template;
mod unstable;
mod validate;

#[cfg(test)]
mod snapshots;

use proc_macro::TokenStream;

/// Makes a message handler of an `async fn`. Documented at `inboxed::idempotent`.
#[proc_macro_attribute]
pub fn idempotent(args: TokenStream, item: TokenStream) -> TokenStream {
    idempotent::attribute(args.into(), &item.into()).into()
}

/// Gives a message its key. Documented at `inboxed::Event`.
#[proc_macro_derive(Event, attributes(event))]
pub fn event(item: TokenStream) -> TokenStream {
    event::derive(item.into()).into()
}

/// Lets a newtype or a fieldless enum stand in a key. Documented at `inboxed::KeyPart`.
#[proc_macro_derive(KeyPart, attributes(key_part))]
pub fn key_part(item: TokenStream) -> TokenStream {
    key_part::derive(item.into()).into()
}
