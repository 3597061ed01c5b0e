//! A key as the attribute gives it, and the code that writes it.

use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens as _, format_ident, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Error, Expr, Lit, LitStr, Member, Pat, Path, Type};

use crate::expression::{self, Bindings, Expression, at, borrowed, call_site};
use crate::template::{Field, Segment, Template};

/// Where a message's key comes from.
#[derive(Clone, Debug)]
pub(crate) enum KeySource {
    /// `key = "order:{order_id}"`.
    Template(Template),
    /// `key = (&order.tenant, order.id)`.
    Expression(Expression),
    /// The message's own, by `#[derive(Event)]`.
    Contract,
}

impl KeySource {
    pub(crate) fn parse(expr: &Expr, bindings: &Bindings) -> Result<Self, Error> {
        match literal(expr) {
            Some(template) => Template::parse(template).map(Self::Template),
            None => Expression::parse(expr, bindings).map(Self::Expression),
        }
    }

    /// The key as written, by which a start notices that it has changed.
    pub(crate) fn text(&self, message: &Type, krate: &Path) -> TokenStream {
        match self {
            Self::Template(template) => template.source.to_token_stream(),
            Self::Expression(expression) => expression.source.to_token_stream(),
            Self::Contract => {
                let contract = contract(message, krate);
                quote!(#contract::KEY)
            }
        }
    }

    /// An expression of type `Result<Key, KeyError>` over the borrowed message.
    pub(crate) fn value(&self, message: &Ident, pat: &Pat, ty: &Type, krate: &Path) -> TokenStream {
        match self {
            Self::Template(template) => write_template(template, &quote!(#message), krate),
            Self::Expression(expression) => {
                let pat = borrowed(pat);
                let key = write_expression(expression, krate);
                quote!({ #[allow(unused_variables)] let #pat = #message; #key })
            }
            Self::Contract => {
                let contract = contract(ty, krate);
                quote!(#contract::key(#message))
            }
        }
    }
}

/// `<Message as Event>`, to be underlined at the message.
fn contract(message: &Type, krate: &Path) -> TokenStream {
    let span = call_site(message.span());
    let krate = at(span, krate);
    quote_spanned!(span=> <#message as #krate::Event>)
}

/// A string literal, also one that a `macro_rules` passed on.
pub(crate) fn literal(expr: &Expr) -> Option<&LitStr> {
    match expr {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Str(literal) => Some(literal),
            _ => None,
        },
        Expr::Group(group) => literal(&group.expr),
        Expr::Paren(paren) => literal(&paren.expr),
        _ => None,
    }
}

/// The key of a template, as a block of type `Result<Key, KeyError>`.
pub(crate) fn write_template(template: &Template, message: &TokenStream, krate: &Path) -> TokenStream {
    let span = template.span;
    let message = at(span, message);
    let steps = template.segments.iter().map(|segment| match segment {
        Segment::Literal(text) => quote!(let __inboxed_key = __inboxed_key.literal(#text);),
        Segment::Part(field) => {
            let members = &field.members;
            let value = quote_spanned!(span=> &#message #(.#members)*);
            write_part(&marker(field, span), &field.name, &value, span, krate)
        }
    });
    block(steps, krate)
}

fn write_expression(expression: &Expression, krate: &Path) -> TokenStream {
    let steps = expression.parts.iter().enumerate().map(|(index, part)| {
        let span = call_site(part.span());
        let mut marker = expression::name(part).cloned().unwrap_or_else(|| format_ident!("key"));
        marker.set_span(span);
        let value = match part {
            Expr::Binary(_) | Expr::Cast(_) | Expr::Range(_) => quote_spanned!(span=> &(#part)),
            _ => quote_spanned!(span=> &#part),
        };
        let part = write_part(&marker, &expression::label(part), &value, span, krate);
        let separator = (index > 0).then(|| quote!(let __inboxed_key = __inboxed_key.literal(":");));
        quote!(#separator #part)
    });
    block(steps, krate)
}

fn block(steps: impl Iterator<Item = TokenStream>, krate: &Path) -> TokenStream {
    quote!({
        let __inboxed_key = #krate::KeyWriter::new();
        #(#steps)*
        __inboxed_key.finish()
    })
}

/// One part. The empty type bears its name into the text of a compile error.
fn write_part(marker: &Ident, name: &str, value: &TokenStream, span: Span, krate: &Path) -> TokenStream {
    let krate = at(span, krate);
    quote_spanned! {span=>
        let __inboxed_key = {
            #[allow(non_camel_case_types)]
            enum #marker {}
            #krate::__private::part::<#marker, _>(__inboxed_key, #name, #value)?
        };
    }
}

fn marker(field: &Field, span: Span) -> Ident {
    if let [Member::Named(name)] = &field.members[..] {
        return name.clone();
    }
    let words = field.members.iter().map(|member| match member {
        Member::Named(name) => name.to_string().trim_start_matches("r#").to_owned(),
        Member::Unnamed(index) => index.index.to_string(),
    });
    let words = words.collect::<Vec<_>>().join("_");
    let words = if words.starts_with(|c: char| c.is_ascii_digit()) { format!("_{words}") } else { words };
    Ident::new(&words, span)
}
