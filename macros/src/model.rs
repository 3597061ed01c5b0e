//! The function under the attribute, as written.

use proc_macro2::{Ident, TokenStream};
use quote::ToTokens as _;
use syn::parse::{Parse, ParseStream};
use syn::visit::Visit;
use syn::{Attribute, Error, FnArg, PatIdent, PatType, PathSegment, Signature, Type, Visibility};

/// A function whose body is kept as tokens, so that an unfinished one doesn't take the editor's help away.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub attrs: Vec<Attribute>,
    pub vis: Visibility,
    pub sig: Signature,
    pub body: TokenStream,
}

impl Parse for Function {
    fn parse(input: ParseStream<'_>) -> Result<Self, Error> {
        Ok(Self {
            attrs: input.call(Attribute::parse_outer)?,
            vis: input.parse()?,
            sig: input.parse()?,
            body: input.parse()?,
        })
    }
}

impl Function {
    /// The parameters but for `self`.
    pub(crate) fn parameters(&self) -> impl Iterator<Item = &PatType> {
        self.sig.inputs.iter().filter_map(|input| match input {
            FnArg::Typed(parameter) => Some(parameter),
            FnArg::Receiver(_) => None,
        })
    }

    /// A parameter of the function's own name, which the unit struct of that name turns into a pattern.
    pub(crate) fn parameter_named_like_it(&self) -> Option<&Ident> {
        struct Named<'a>(&'a Ident, Option<&'a Ident>);
        impl<'a> Visit<'a> for Named<'a> {
            fn visit_pat_ident(&mut self, pat: &'a PatIdent) {
                if pat.ident == *self.0 {
                    self.1 = Some(&pat.ident);
                }
                syn::visit::visit_pat_ident(self, pat);
            }
        }
        let mut named = Named(&self.sig.ident, None);
        self.parameters().for_each(|parameter| named.visit_pat(&parameter.pat));
        named.1
    }

    /// Where a missing parameter is reported: at the others, else at the name.
    pub(crate) fn parameter_list(&self) -> TokenStream {
        if self.sig.inputs.is_empty() { self.sig.ident.to_token_stream() } else { self.sig.inputs.to_token_stream() }
    }
}

/// What a parameter's type says of it. Aliases can't be seen through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// `&mut SqliteConnection`, or any other `&mut`.
    Transaction,
    /// `State<T>`.
    State,
    /// `&Delivery`.
    Delivery,
    /// Any other reference, such as `&Key`.
    Reference,
    /// A pool or a connection of its own, which would write outside the inbox's transaction.
    Pool,
    /// sqlx's own transaction.
    SqlxTransaction,
    /// Taken by value.
    Value,
}

impl Role {
    pub(crate) fn of(ty: &Type) -> Self {
        let (inner, reference) = match ty {
            Type::Reference(reference) => (&*reference.elem, Some(reference.mutability.is_some())),
            _ => (ty, None),
        };
        // Without arguments `Transaction`, `Pool` and `State` are a message's own names.
        match (last_segment(inner).as_deref(), reference) {
            (Some("PgPool" | "MySqlPool" | "SqlitePool" | "AnyPool"), _) => Self::Pool,
            (Some("Pool" | "PoolConnection"), _) if has_arguments(inner) => Self::Pool,
            (Some("Transaction"), _) if has_arguments(inner) => Self::SqlxTransaction,
            (Some("State"), None) if has_arguments(inner) => Self::State,
            (Some("Delivery"), Some(false)) => Self::Delivery,
            (_, Some(true)) => Self::Transaction,
            (_, Some(false)) => Self::Reference,
            (_, None) => Self::Value,
        }
    }
}

/// The last name of a type's path.
pub(crate) fn last_segment(ty: &Type) -> Option<String> {
    last(ty).map(|segment| segment.ident.to_string())
}

fn has_arguments(ty: &Type) -> bool {
    last(ty).is_some_and(|segment| !segment.arguments.is_none())
}

fn last(ty: &Type) -> Option<&PathSegment> {
    match ty {
        Type::Path(path) => path.path.segments.last(),
        Type::Group(group) => last(&group.elem),
        Type::Paren(paren) => last(&paren.elem),
        _ => None,
    }
}
