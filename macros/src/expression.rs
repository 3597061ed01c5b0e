//! A key's expression over the message parameter, `(&order.tenant, order.id)`.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{Error, Expr, Member, Pat};

use crate::errors::key as errors;
use crate::model::Role;
use crate::unstable;

/// An expression that reads nothing but the message.
#[derive(Clone, Debug)]
pub(crate) struct Expression {
    /// In one spelling whatever the spacing, since a start compares it with the one before.
    pub source: String,
    /// The members of the tuple, or the one value. Each is borrowed, so that a key moves nothing out of the message.
    pub parts: Vec<Expr>,
}

/// The names that a handler's parameters bind.
#[derive(Debug, Default)]
pub(crate) struct Bindings {
    pub message: Vec<String>,
    pub others: Vec<(String, Role)>,
}

impl Expression {
    pub(crate) fn parse(expr: &Expr, bindings: &Bindings) -> Result<Self, Error> {
        if let Expr::Closure(closure) = expr {
            return Err(errors::closure(closure));
        }
        unstable::check(expr)?;
        let names = names(expr.to_token_stream());
        for name in &names {
            let text = name.to_string();
            match bindings.others.iter().find(|(other, _)| *other == text) {
                Some((_, Role::Delivery)) => return Err(errors::delivery(name, &text)),
                Some(_) => return Err(errors::other_parameter(name, &text)),
                None => {}
            }
        }
        if !names.iter().any(|name| bindings.message.contains(&name.to_string())) {
            return Err(errors::constant(expr));
        }
        let mut parts = Vec::new();
        flatten(expr, &mut parts);
        Ok(Self { source: source(expr), parts })
    }
}

/// A tuple's members become the key's parts, as its `KeyPart` would write them.
fn flatten(expr: &Expr, parts: &mut Vec<Expr>) {
    match expr {
        Expr::Tuple(tuple) => tuple.elems.iter().for_each(|member| flatten(member, parts)),
        Expr::Paren(paren) => flatten(&paren.expr, parts),
        Expr::Group(group) => flatten(&group.expr, parts),
        _ => parts.push(expr.clone()),
    }
}

/// The word that names a part in an error.
pub(crate) fn name(part: &Expr) -> Option<&Ident> {
    match part {
        Expr::Field(access) => match &access.member {
            Member::Named(name) => Some(name),
            Member::Unnamed(_) => None,
        },
        Expr::Path(path) => path.path.get_ident(),
        Expr::MethodCall(call) => name(&call.receiver).or(Some(&call.method)),
        Expr::Reference(reference) => name(&reference.expr),
        Expr::Unary(unary) => name(&unary.expr),
        Expr::Paren(paren) => name(&paren.expr),
        Expr::Cast(cast) => name(&cast.expr),
        _ => None,
    }
}

/// The names that a pattern binds; constructors begin with a capital.
pub(crate) fn bindings(pat: &Pat) -> Vec<String> {
    let names = names(pat.to_token_stream()).into_iter().map(|name| name.to_string());
    names.filter(|name| !name.starts_with(char::is_uppercase)).collect()
}

/// Words that aren't a field or a method of something.
fn names(tokens: TokenStream) -> Vec<Ident> {
    let mut names = Vec::new();
    let mut after_dot = false;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                if !after_dot {
                    names.push(ident);
                }
                after_dot = false;
            }
            TokenTree::Group(group) => {
                names.extend(self::names(group.stream()));
                after_dot = false;
            }
            TokenTree::Punct(punct) => after_dot = punct.as_char() == '.' && !after_dot,
            TokenTree::Literal(literal) => {
                // `format!("{order}")` reads what stands in its braces.
                let text = literal.to_string();
                names.extend(inline_arguments(&text).map(|name| Ident::new(name, literal.span())));
                after_dot = false;
            }
        }
    }
    names
}

fn inline_arguments(literal: &str) -> impl Iterator<Item = &str> {
    literal
        .split('{')
        .skip(1)
        .filter_map(|rest| rest.split(['}', ':']).next())
        .filter(|name| syn::parse_str::<Ident>(name).is_ok())
}

/// Tokens in one spelling: a space stands only where two words would run together.
pub(crate) fn source(tokens: &impl ToTokens) -> String {
    let mut text = String::new();
    write(tokens.to_token_stream(), &mut text);
    text
}

fn write(tokens: TokenStream, text: &mut String) {
    for token in tokens {
        if let TokenTree::Group(group) = token {
            let (open, close) = match group.delimiter() {
                proc_macro2::Delimiter::Parenthesis => ("(", ")"),
                proc_macro2::Delimiter::Brace => ("{", "}"),
                proc_macro2::Delimiter::Bracket => ("[", "]"),
                proc_macro2::Delimiter::None => ("", ""),
            };
            text.push_str(open);
            write(group.stream(), text);
            text.push_str(close);
            continue;
        }
        let word = token.to_string();
        let is_word = |c: char| c.is_alphanumeric() || c == '_' || c == '"' || c == '\'';
        if text.ends_with([',', ';']) || (text.ends_with(is_word) && word.starts_with(is_word)) {
            text.push(' ');
        }
        text.push_str(&word);
    }
}

/// How an error names a part: what is borrowed, without its `&`.
pub(crate) fn label(part: &Expr) -> String {
    source(part).trim_start_matches('&').to_owned()
}

/// The message's pattern for a borrowed message: what it binds is borrowed without its saying so.
pub(crate) fn borrowed(pat: &Pat) -> TokenStream {
    fn strip(tokens: TokenStream) -> TokenStream {
        tokens
            .into_iter()
            .filter_map(|token| match token {
                TokenTree::Ident(ident) if ident == "mut" || ident == "ref" => None,
                TokenTree::Group(group) => {
                    let mut stripped = proc_macro2::Group::new(group.delimiter(), strip(group.stream()));
                    stripped.set_span(group.span());
                    Some(stripped.into())
                }
                token => Some(token),
            })
            .collect()
    }
    strip(pat.to_token_stream())
}

/// A span that sees the caller's names.
pub(crate) fn call_site(span: Span) -> Span {
    span.resolved_at(Span::call_site())
}

/// The same tokens, all at this span: a diagnostic underlines everything between an expression's first token and its
/// last.
pub(crate) fn at(span: Span, tokens: impl ToTokens) -> TokenStream {
    let respan = |mut token: TokenTree| {
        if let TokenTree::Group(group) = &token {
            token = proc_macro2::Group::new(group.delimiter(), at(span, group.stream())).into();
        }
        token.set_span(span);
        token
    };
    tokens.into_token_stream().into_iter().map(respan).collect()
}
