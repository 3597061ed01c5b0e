//! `#[derive(Event)]`: a message's key, written beside its fields and shared by producer and consumers.

use proc_macro2::TokenStream;
use quote::{ToTokens as _, quote};
use syn::{Attribute, Data, DeriveInput, Error, Field, Fields, LitStr, Member, Path, Token};

use crate::errors::{Errors, event as errors, key as key_errors};
use crate::idempotent::facade;
use crate::key::write_template;
use crate::template::Template;

/// What `#[event(…)]` says.
struct Contract {
    key: LitStr,
    krate: Path,
}

pub(crate) fn derive(item: TokenStream) -> TokenStream {
    let input = match syn::parse2::<DeriveInput>(item) {
        Ok(input) => input,
        Err(error) => return error.to_compile_error(),
    };
    match expand(&input) {
        Ok(implementation) => implementation,
        Err((errors, krate)) => {
            // The trait is there all the same, so that the handlers of this message add no second error.
            let implementation = implement(&input, &krate, "", &quote!(::core::unreachable!()));
            let errors = errors.into_tokens();
            quote!(#implementation #errors)
        }
    }
}

fn expand(input: &DeriveInput) -> Result<TokenStream, (Errors, Path)> {
    let mut errors = Errors::default();
    let contract = errors.keep(contract(input));
    let krate = contract.as_ref().map_or_else(facade, |contract| contract.krate.clone());
    let template = contract.and_then(|contract| errors.keep(checked(input, &contract.key)));
    let Some(template) = template else { return Err((errors, krate)) };
    let value = write_template(&template, &quote!(self), &krate);
    Ok(implement(input, &krate, &template.source, &value))
}

fn implement(input: &DeriveInput, krate: &Path, template: &str, value: &TokenStream) -> TokenStream {
    let name = &input.ident;
    let (generics, arguments, clause) = input.generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #generics #krate::Event for #name #arguments #clause {
            const KEY: &'static str = #template;

            fn key(&self) -> ::core::result::Result<#krate::Key, #krate::KeyError> {
                #value
            }
        }
    }
}

fn contract(input: &DeriveInput) -> Result<Contract, Error> {
    let mut key = None;
    let mut krate = facade();
    for attr in input.attrs.iter().filter(|attr| attr.path().is_ident("event")) {
        attr.parse_nested_meta(|meta| {
            if meta.path.is_ident("key") {
                let value = meta.value()?.parse::<syn::Expr>()?;
                let template = crate::key::literal(&value).ok_or_else(|| key_errors::no_template(&value))?;
                key = Some(template.clone());
                return Ok(());
            }
            if meta.path.is_ident("crate") {
                krate = meta.value()?.call(Path::parse_mod_style)?;
                return Ok(());
            }
            Err(key_errors::no_template(&meta.path))
        })?;
    }
    match key {
        Some(key) => Ok(Contract { key, krate }),
        None => Err(errors::no_key(&input.ident)),
    }
}

fn checked(input: &DeriveInput, key: &LitStr) -> Result<Template, Error> {
    let Data::Struct(data) = &input.data else { return Err(errors::not_a_struct(&input.ident)) };
    let template = Template::parse(key)?;
    for part in template.fields() {
        let Some((name, field)) = part.members.first().and_then(|member| find(&data.fields, member)) else {
            let known = data.fields.members().map(|member| name_of(&member)).collect::<Vec<_>>();
            return Err(errors::unknown_field(key, &part.name, &known));
        };
        refuse(&field.attrs, &name, &["default", "skip", "skip_deserializing"])?;
        refuse(&input.attrs, &name, &["default"])?;
    }
    Ok(template)
}

fn find<'a>(fields: &'a Fields, member: &Member) -> Option<(String, &'a Field)> {
    let found = fields.members().zip(fields).find(|(known, _)| name_of(known) == name_of(member))?;
    Some((name_of(&found.0), found.1))
}

fn name_of(member: &Member) -> String {
    match member {
        Member::Named(name) => name.to_string().trim_start_matches("r#").to_owned(),
        Member::Unnamed(index) => index.index.to_string(),
    }
}

/// Refuses what makes serde fill a key part in for a message that lacks it.
fn refuse(attrs: &[Attribute], field: &str, names: &[&str]) -> Result<(), Error> {
    for attr in attrs.iter().filter(|attr| attr.path().is_ident("serde")) {
        let Ok(tokens) = attr.meta.require_list().map(|list| list.tokens.clone()) else { continue };
        let options = syn::punctuated::Punctuated::<syn::Meta, Token![,]>::parse_terminated;
        // What isn't understood here is serde's to report.
        let Ok(options) = syn::parse::Parser::parse2(options, tokens) else { continue };
        for option in options {
            if let Some(name) = names.iter().find(|name| option.path().is_ident(name)) {
                return Err(errors::serde(option.to_token_stream(), field, name));
            }
        }
    }
    Ok(())
}
