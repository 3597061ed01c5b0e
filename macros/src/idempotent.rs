//! `#[idempotent]`: parse, validate, expand.

use proc_macro2::TokenStream;
use quote::quote;
use syn::Path;

use crate::args::Args;
use crate::errors::{Errors, function as errors};
use crate::expand;
use crate::model::Function;
use crate::validate::validate;

pub(crate) fn attribute(args: TokenStream, item: &TokenStream) -> TokenStream {
    let Ok(function) = syn::parse2::<Function>(item.clone()) else {
        let error = errors::not_a_function(item).to_compile_error();
        return quote!(#error #item);
    };
    let mut errors = Errors::default();
    let args = Args::parse(args, &mut errors);
    let krate = args.krate.clone().unwrap_or_else(facade);
    let handler = validate(&args, &function, &mut errors);
    if function.sig.receiver().is_some() {
        // Inside an `impl` neither a struct nor another `impl` may stand, so the method stays as it is.
        let errors = errors.into_tokens();
        return quote!(#item #errors);
    }
    let item = expand::function(&function);
    let handler = match handler {
        Some(handler) => expand::handler(&function, &handler, &krate),
        None => expand::unreachable(&function, &krate),
    };
    let errors = errors.into_tokens();
    quote!(#item #handler #errors)
}

/// Where the runtime is found unless `crate = …` says otherwise.
pub(crate) fn facade() -> Path {
    syn::parse_quote!(::inboxed)
}
