//! What the attribute and the derive expand to, held against the files in `tests/expand`.
//!
//! `INBOXED_EXPAND=overwrite cargo test -p inboxed-macros` writes them anew.

use std::fs;
use std::path::Path;

use proc_macro2::TokenStream;
use quote::ToTokens as _;
use syn::{Attribute, Item, Meta};

#[test]
fn expansions_are_as_checked_in() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expand");
    let mut seen = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Some(stem) = name.strip_suffix(".rs").filter(|stem| !stem.ends_with(".expanded")) else { continue };
        let expanded = expand(&fs::read_to_string(&path).unwrap());
        let snapshot = folder.join(format!("{stem}.expanded.rs"));
        if std::env::var_os("INBOXED_EXPAND").is_some() {
            fs::write(&snapshot, &expanded).unwrap();
        }
        let expected = fs::read_to_string(&snapshot).unwrap_or_default();
        assert_eq!(expected, expanded, "{stem} expands otherwise; if that is meant, INBOXED_EXPAND=overwrite");
        seen += 1;
    }
    assert!(seen >= 6, "only {seen} expansions");
}

/// A file's handlers and messages, expanded and laid out.
fn expand(source: &str) -> String {
    let file = syn::parse_file(source).unwrap();
    let tokens = file.items.into_iter().map(expand_item).collect::<TokenStream>();
    prettyplease::unparse(&syn2::parse2(tokens).unwrap())
}

fn expand_item(mut item: Item) -> TokenStream {
    match &mut item {
        Item::Fn(function) => {
            let Some(attribute) = take(&mut function.attrs, "idempotent") else { return item.to_token_stream() };
            let options = match attribute.meta {
                Meta::List(list) => list.tokens,
                _ => TokenStream::new(),
            };
            crate::idempotent::attribute(options, &function.to_token_stream())
        }
        Item::Struct(message) => {
            take(&mut message.attrs, "derive");
            crate::event::derive(message.to_token_stream())
        }
        Item::Enum(part) => {
            take(&mut part.attrs, "derive");
            crate::key_part::derive(part.to_token_stream())
        }
        _ => item.to_token_stream(),
    }
}

fn take(attrs: &mut Vec<Attribute>, name: &str) -> Option<Attribute> {
    let index = attrs.iter().position(|attr| attr.path().is_ident(name))?;
    Some(attrs.remove(index))
}
