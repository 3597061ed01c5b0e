//! `#[derive(KeyPart)]`: newtypes write their value, fieldless enums the name of their variant.

use std::collections::HashSet;

use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Data, DataEnum, DeriveInput, Error, Fields, LitStr, Path, Variant};

use crate::errors::key_part as errors;
use crate::expression::{at, call_site};
use crate::idempotent::facade;

pub(crate) fn derive(item: TokenStream) -> TokenStream {
    let input = match syn::parse2::<DeriveInput>(item) {
        Ok(input) => input,
        Err(error) => return error.to_compile_error(),
    };
    let krate = match krate(&input) {
        Ok(krate) => krate,
        Err(error) => return error.to_compile_error(),
    };
    match body(&input, &krate) {
        Ok(body) => implement(&input, &krate, &body),
        Err(error) => {
            // The trait is there all the same, so that the keys that use this type add no second error.
            let implementation = implement(&input, &krate, &quote!(::core::unreachable!()));
            let error = error.to_compile_error();
            quote!(#implementation #error)
        }
    }
}

fn implement(input: &DeriveInput, krate: &Path, body: &TokenStream) -> TokenStream {
    let name = &input.ident;
    let (generics, arguments, clause) = input.generics.split_for_impl();
    quote! {
        #[automatically_derived]
        impl #generics #krate::KeyPart for #name #arguments #clause {
            fn write(&self, __inboxed_key: &mut #krate::KeyWriter) -> ::core::result::Result<(), #krate::KeyError> {
                #body
            }
        }
    }
}

fn body(input: &DeriveInput, krate: &Path) -> Result<TokenStream, Error> {
    match &input.data {
        Data::Struct(data) => newtype(&input.ident, &data.fields, krate),
        Data::Enum(data) => fieldless(input, data),
        Data::Union(_) => Err(errors::shape(&input.ident)),
    }
}

fn newtype(name: &Ident, fields: &Fields, krate: &Path) -> Result<TokenStream, Error> {
    let mut members = fields.members().zip(fields);
    let (Some((member, field)), None) = (members.next(), members.next()) else { return Err(errors::shape(name)) };
    let span = call_site(field.ty.span());
    let krate = at(span, krate);
    Ok(quote_spanned!(span=> #krate::__private::write::<#name, _>(&self.#member, __inboxed_key)))
}

fn fieldless(input: &DeriveInput, data: &DataEnum) -> Result<TokenStream, Error> {
    if data.variants.is_empty() {
        return Err(errors::shape(&input.ident));
    }
    let mut known = HashSet::new();
    let mut arms = TokenStream::new();
    for variant in &data.variants {
        if !matches!(variant.fields, Fields::Unit) {
            return Err(errors::shape(variant));
        }
        let text = text(variant)?;
        if !known.insert(text.clone()) {
            return Err(errors::same_text(variant, &text));
        }
        let variant = &variant.ident;
        arms.extend(quote!(Self::#variant => #text,));
    }
    Ok(quote!(__inboxed_key.text(match self { #arms })))
}

/// The variant's text in a key: its name, which then can't be changed without changing every key, or the one given.
fn text(variant: &Variant) -> Result<String, Error> {
    let mut text = variant.ident.to_string().trim_start_matches("r#").to_owned();
    for attr in variant.attrs.iter().filter(|attr| attr.path().is_ident("key_part")) {
        attr.parse_nested_meta(|meta| {
            if !meta.path.is_ident("rename") {
                return Err(errors::unknown(&meta.path));
            }
            let rename = meta.value()?.parse::<LitStr>()?;
            text = rename.value();
            if text.is_empty() { Err(errors::empty(rename)) } else { Ok(()) }
        })?;
    }
    Ok(text)
}

fn krate(input: &DeriveInput) -> Result<Path, Error> {
    let mut krate = facade();
    for attr in input.attrs.iter().filter(|attr| attr.path().is_ident("key_part")) {
        attr.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(errors::unknown(&meta.path));
            }
            krate = meta.value()?.call(Path::parse_mod_style)?;
            Ok(())
        })?;
    }
    Ok(krate)
}
