//! The options of `#[idempotent(…)]`, as written.

use proc_macro2::Ident;
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::{Error, Expr, Path, Token};

use crate::errors::{Errors, options};

/// The options as written; none is checked yet.
#[derive(Debug, Default)]
pub(crate) struct Args {
    pub key: Option<Expr>,
    pub previous_key: Option<Expr>,
    pub consumer: Option<Expr>,
    pub retention: Option<Expr>,
    pub timeout: Option<Expr>,
    pub on_conflict: Option<Expr>,
    pub krate: Option<Path>,
}

impl Args {
    pub(crate) fn parse(tokens: proc_macro2::TokenStream, errors: &mut Errors) -> Self {
        let mut args = Self::default();
        let parser = |input: ParseStream<'_>| args.parse_all(input, errors);
        if let Err(error) = parser.parse2(tokens) {
            errors.push(error);
        }
        args
    }

    fn parse_all(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> Result<(), Error> {
        while !input.is_empty() {
            self.parse_one(input, errors)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(())
    }

    fn parse_one(&mut self, input: ParseStream<'_>, errors: &mut Errors) -> Result<(), Error> {
        if !input.peek(Ident::peek_any) {
            return Err(options::no_keyword(input.parse::<Expr>()?));
        }
        let option = input.call(Ident::parse_any)?;
        let name = option.to_string();
        if name == "crate" {
            input.parse::<Token![=]>()?;
            self.krate = Some(input.call(Path::parse_mod_style)?);
            return Ok(());
        }
        let slot = match name.as_str() {
            "key" => &mut self.key,
            "previous_key" => &mut self.previous_key,
            "consumer" => &mut self.consumer,
            "retention" => &mut self.retention,
            "timeout" => &mut self.timeout,
            "on_conflict" => &mut self.on_conflict,
            _ => {
                errors.push(options::unknown(&option));
                return skip(input);
            }
        };
        if !input.peek(Token![=]) {
            return Err(options::no_value(&option));
        }
        input.parse::<Token![=]>()?;
        let value = input.parse::<Expr>()?;
        if slot.is_some() {
            errors.push(options::repeated(&option));
        } else {
            *slot = Some(value);
        }
        Ok(())
    }
}

/// Goes on after an option that isn't known, so that the others are still checked.
fn skip(input: ParseStream<'_>) -> Result<(), Error> {
    while !input.is_empty() && !input.peek(Token![,]) {
        input.parse::<proc_macro2::TokenTree>()?;
    }
    Ok(())
}
