//! A key's template, `order:{order_id}:placed`: literals and fields of the message.

use proc_macro2::{Ident, Span};
use syn::ext::IdentExt as _;
use syn::parse::Parser as _;
use syn::{Error, Index, LitStr, Member};

use crate::errors::key as errors;
use crate::unstable;

/// A template whose key tells every two tuples of parts apart.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// As written.
    pub source: String,
    /// Where it was written, with the hygiene of the attribute's call: a template out of `macro_rules!` still sees the
    /// message's fields.
    pub span: Span,
    pub segments: Vec<Segment>,
}

#[derive(Clone, Debug)]
pub(crate) enum Segment {
    Literal(String),
    Part(Field),
}

/// A field of the message, `customer.id`, as an error names it and as its members.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub name: String,
    pub members: Vec<Member>,
}

impl Template {
    pub(crate) fn parse(literal: &LitStr) -> Result<Self, Error> {
        let source = literal.value();
        let span = literal.span().resolved_at(Span::call_site());
        let mut segments = Vec::new();
        let mut rest = source.as_str();
        while let Some(start) = rest.find(['{', '}']) {
            push_literal(&mut segments, &rest[..start], literal)?;
            let part = rest[start..].strip_prefix('{').ok_or_else(|| errors::open_brace(literal))?;
            let end = part.find(['{', '}']).filter(|&end| part[end..].starts_with('}'));
            let end = end.ok_or_else(|| errors::open_brace(literal))?;
            segments.push(Segment::Part(field(&part[..end], span, literal)?));
            rest = &part[end + 1..];
        }
        push_literal(&mut segments, rest, literal)?;
        let template = Self { source, span, segments };
        template.check(literal)?;
        Ok(template)
    }

    /// The fields in the template's order.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &Field> {
        self.segments.iter().filter_map(|segment| match segment {
            Segment::Part(field) => Some(field),
            Segment::Literal(_) => None,
        })
    }

    fn check(&self, literal: &LitStr) -> Result<(), Error> {
        if self.source.is_empty() {
            return Err(errors::empty(literal));
        }
        if self.fields().next().is_none() {
            return Err(errors::constant(literal));
        }
        let mut before = None;
        let mut parted = false;
        for segment in &self.segments {
            match segment {
                // A part is encoded and holds neither, so the key splits at them in one way only.
                Segment::Literal(text) => parted |= text.contains([':', '/']),
                Segment::Part(field) => {
                    if let Some(before) = before.replace(&field.name)
                        && !parted
                    {
                        return Err(errors::ambiguous(literal, before, &field.name));
                    }
                    parted = false;
                }
            }
        }
        Ok(())
    }
}

fn push_literal(segments: &mut Vec<Segment>, text: &str, literal: &LitStr) -> Result<(), Error> {
    let allowed = |c: &char| c.is_ascii_alphanumeric() || "-._~:/".contains(*c);
    if let Some(found) = text.chars().find(|c| !allowed(c)) {
        return Err(errors::alphabet(literal, found));
    }
    if !text.is_empty() {
        segments.push(Segment::Literal(text.to_owned()));
    }
    Ok(())
}

fn field(text: &str, span: Span, literal: &LitStr) -> Result<Field, Error> {
    if text.contains(':') {
        return Err(errors::format_options(literal, text));
    }
    let members = text.split('.').map(|name| member(name, span)).collect::<Option<Vec<_>>>();
    let members = members.ok_or_else(|| errors::no_field(literal, text))?;
    if let Some(why) = text.split('.').find_map(unstable::field) {
        return Err(errors::unstable(literal, text, why));
    }
    Ok(Field { name: text.to_owned(), members })
}

/// A field's name or position; `{type}` is the field `r#type`.
fn member(name: &str, span: Span) -> Option<Member> {
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
        return name.parse().ok().map(|index| Member::Unnamed(Index { index, span }));
    }
    let mut ident = Ident::parse_any.parse_str(name).ok()?;
    if syn::parse_str::<Ident>(name).is_err() {
        if matches!(name, "self" | "Self" | "super" | "crate" | "_") {
            return None;
        }
        ident = Ident::new_raw(name, span);
    }
    ident.set_span(span);
    Some(Member::Named(ident))
}
