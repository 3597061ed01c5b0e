//! The text of every compile error: what is wrong, why a redelivery breaks it, and what to write instead.

pub(crate) mod event;
pub(crate) mod function;
pub(crate) mod key;
pub(crate) mod key_part;
pub(crate) mod options;

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
