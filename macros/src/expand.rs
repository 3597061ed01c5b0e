//! The items that take the function's place: a unit struct, its `effect`, and its [`Handler`].

use std::time::Duration;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Attribute, Path, Type};

use crate::expression::call_site;
use crate::model::{Function, Role};
use crate::validate::Handler;

const EFFECT: &str = "The handler's body alone, for tests: no claim stands in its way, and nothing is committed.";

/// The struct, and the body as its `effect`. They stand even if the attribute is wrong, so that the editor goes on
/// helping and no second error follows.
pub(crate) fn function(function: &Function) -> TokenStream {
    let Function { attrs, vis, sig, body } = function;
    let name = &sig.ident;
    let docs = attrs.iter().filter(|attr| is(attr, &["doc", "deprecated"]));
    let cfgs = conditions(attrs);
    let own = attrs.iter().filter(|attr| !is(attr, &["doc", "deprecated", "cfg"]));
    let effect = syn::Signature { ident: Ident::new("effect", name.span()), ..sig.clone() };
    quote! {
        #(#docs)*
        #(#cfgs)*
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug)]
        #vis struct #name;

        #(#cfgs)*
        impl #name {
            #[doc = #EFFECT]
            #(#own)*
            #vis #effect #body
        }
    }
}

/// The handler of a function that keeps the rules.
pub(crate) fn handler(function: &Function, handler: &Handler, krate: &Path) -> TokenStream {
    let name = &function.sig.ident;
    let cfgs = conditions(&function.attrs);
    let connection = &handler.connection;
    let carries = quote_spanned!(call_site(connection.span())=> #krate::InboxConnection);
    let db = quote!(<#connection as #carries>::Db);
    let spec = spec(function, handler, krate);
    let parameters = function.parameters().collect::<Vec<_>>();
    let (message_pat, message) = (&parameters[handler.message].pat, &parameters[handler.message].ty);
    let decode = quote_spanned!(call_site(message.span())=> #krate::Decode<#message>);
    let states = parameters.iter().filter(|parameter| Role::of(&parameter.ty) == Role::State);
    let states = states.map(|parameter| {
        let ty = &parameter.ty;
        quote_spanned!(call_site(ty.span())=> #ty: for<'__part> #krate::FromParts<'__part, #db, __State>)
    });
    let borrowed = Ident::new("__inboxed_message", Span::call_site());
    let key = handler.key.value(&borrowed, message_pat, message, krate);
    let identity = match &handler.previous_key {
        None => quote!(#krate::Identity::key(#key?)),
        Some(previous) => {
            let previous = previous.value(&borrowed, message_pat, message, krate);
            quote! {
                #krate::Identity::with_previous(
                    #key?,
                    (|| -> ::core::result::Result<#krate::Key, #krate::KeyError> { #previous })(),
                )
            }
        }
    };
    let arguments = parameters.iter().enumerate().map(|(index, parameter)| {
        let ty = &parameter.ty;
        if index == handler.message {
            quote!(#krate::__private::message::<#ty>(__inboxed_message)?)
        } else {
            let part = quote_spanned!(call_site(ty.span())=> #krate::FromParts<'_, _, _>);
            quote!(<#ty as #part>::from_parts(&mut __inboxed_parts)?)
        }
    });
    let sendable = quote_spanned!(call_site(name.span())=> #krate::__private::body);
    let into_result = result(&handler.result, krate);
    quote! {
        #(#cfgs)*
        #[automatically_derived]
        impl<__State, __Decoder> #krate::Handler<#db, __State, __Decoder> for #name
        where
            __State: ::core::marker::Send + ::core::marker::Sync + 'static,
            __Decoder: #decode,
            #(#states,)*
        {
            const SPEC: #krate::Spec = #spec;

            fn prepare(
                &self,
                __inboxed_received: &#krate::Received,
                __inboxed_decoder: &__Decoder,
            ) -> ::core::result::Result<#krate::__private::Prepared, #krate::Refusal> {
                #krate::__private::prepare(
                    __inboxed_received,
                    __inboxed_decoder,
                    |__inboxed_message: &#message| ::core::result::Result::Ok(#identity),
                )
            }

            fn run<'__run>(
                &'__run self,
                __inboxed_message: #krate::__private::AnyMessage,
                mut __inboxed_parts: #krate::Parts<'__run, #db, __State>,
            ) -> #krate::__private::BoxFuture<'__run, ::core::result::Result<(), #krate::Error>> {
                #sendable(async move {
                    let __inboxed_result = Self::effect(#(#arguments),*).await;
                    #into_result
                })
            }
        }
    }
}

fn result(ty: &Type, krate: &Path) -> TokenStream {
    quote_spanned!(call_site(ty.span())=> #krate::BodyResult::into_result(__inboxed_result))
}

fn spec(function: &Function, handler: &Handler, krate: &Path) -> TokenStream {
    let message = &function.parameters().nth(handler.message).map(|parameter| (*parameter.ty).clone());
    let text = |key: &crate::key::KeySource| message.as_ref().map(|message| key.text(message, krate));
    let consumer = &handler.consumer;
    let key = text(&handler.key);
    let previous = handler.previous_key.as_ref().map(text).map(|key| quote!(.previous_key(#key)));
    let timeout = handler.timeout.map(duration).map(|limit| quote!(.timeout(#limit)));
    let retention = handler.retention.map(duration).map(|limit| quote!(.retention(#limit)));
    let conflicts = handler.dead_letter_conflicts.then(|| quote!(.on_conflict(#krate::OnConflict::DeadLetter)));
    quote!(#krate::Spec::new(#consumer, #key) #previous #timeout #retention #conflicts)
}

fn duration(limit: Duration) -> TokenStream {
    let milliseconds = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
    quote!(::core::time::Duration::from_millis(#milliseconds))
}

/// A handler for any consumer, behind an attribute that doesn't compile: registering it adds no second error.
pub(crate) fn unreachable(function: &Function, krate: &Path) -> TokenStream {
    let name = &function.sig.ident;
    let cfgs = conditions(&function.attrs);
    let transaction = function.parameters().find_map(|parameter| match (Role::of(&parameter.ty), &*parameter.ty) {
        (Role::Transaction, Type::Reference(reference)) => Some(&*reference.elem),
        _ => None,
    });
    // The database is named if it can be, or the inbox's type would have to be.
    let (generic, db) = match transaction {
        Some(connection) => (None, quote!(<#connection as #krate::InboxConnection>::Db)),
        None => (Some(quote!(__Db: #krate::store::Store,)), quote!(__Db)),
    };
    quote! {
        #(#cfgs)*
        #[automatically_derived]
        impl<#generic __State, __Decoder> #krate::Handler<#db, __State, __Decoder> for #name
        where
            __State: ::core::marker::Send + ::core::marker::Sync + 'static,
        {
            const SPEC: #krate::Spec = #krate::Spec::new("", "");

            fn prepare(
                &self,
                _: &#krate::Received,
                _: &__Decoder,
            ) -> ::core::result::Result<#krate::__private::Prepared, #krate::Refusal> {
                ::core::unreachable!()
            }

            fn run<'__run>(
                &'__run self,
                _: #krate::__private::AnyMessage,
                _: #krate::Parts<'__run, #db, __State>,
            ) -> #krate::__private::BoxFuture<'__run, ::core::result::Result<(), #krate::Error>> {
                ::core::unreachable!()
            }
        }
    }
}

/// The conditions under which the function exists, and with it every item made of it.
fn conditions(attrs: &[Attribute]) -> Vec<&Attribute> {
    attrs.iter().filter(|attr| is(attr, &["cfg"])).collect()
}

fn is(attr: &Attribute, names: &[&str]) -> bool {
    names.iter().any(|name| attr.path().is_ident(name))
}
