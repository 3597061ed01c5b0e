//! The items that take the function's place: a unit struct, its `effect`, and its [`Handler`].

use std::time::Duration;

use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, PatType, Path, Type};

use crate::expression::{at, call_site};
use crate::key::KeySource;
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
    // A parameter of the struct's name doesn't compile, and is an error of ours already.
    let effect = if function.parameter_named_like_it().is_some() {
        TokenStream::new()
    } else {
        quote! {
            #cfgs
            impl #name {
                #[doc = #EFFECT]
                #[allow(private_interfaces)]
                #(#own)*
                #vis #effect #body
            }
        }
    };
    quote! {
        #(#docs)*
        #cfgs
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug)]
        #vis struct #name;

        #effect
    }
}

/// The handler of a function that keeps the rules.
pub(crate) fn handler(function: &Function, handler: &Handler, krate: &Path) -> TokenStream {
    let name = &function.sig.ident;
    let cfgs = conditions(&function.attrs);
    let parameters = function.parameters().collect::<Vec<_>>();
    let message = parameters[handler.message];
    let db = database(&handler.connection, krate);
    let decode = {
        let (ty, (span, krate)) = (&message.ty, place(&message.ty, krate));
        quote_spanned!(span=> #krate::Decode<#ty>)
    };
    let states = parameters.iter().filter(|parameter| Role::of(&parameter.ty) == Role::State).map(|parameter| {
        let (ty, (span, krate)) = (&parameter.ty, place(&parameter.ty, krate));
        quote_spanned!(span=> #ty: for<'__part> #krate::FromParts<'__part, #db, __State>)
    });
    let spec = spec(handler, message, krate);
    let prepare = prepare(handler, message, krate);
    let run = run(function, handler, krate);
    quote! {
        #cfgs
        #[automatically_derived]
        impl<__State, __Decoder> #krate::Handler<#db, __State, __Decoder> for #name
        where
            __State: ::core::marker::Send + ::core::marker::Sync + 'static,
            __Decoder: #decode,
            #(#states,)*
        {
            const SPEC: #krate::Spec = #spec;
            #prepare
            #run
        }
    }
}

fn spec(handler: &Handler, message: &PatType, krate: &Path) -> TokenStream {
    let text = |key: &KeySource| key.text(&message.ty, krate);
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

fn prepare(handler: &Handler, message: &PatType, krate: &Path) -> TokenStream {
    let PatType { pat, ty, .. } = message;
    let borrowed = Ident::new("__inboxed_message", Span::call_site());
    let key = handler.key.value(&borrowed, pat, ty, krate);
    let identity = if let Some(previous) = &handler.previous_key {
        let previous = previous.value(&borrowed, pat, ty, krate);
        // A closure of its own: a message without the old key is no error.
        let previous = quote! {
            (|| -> ::core::result::Result<#krate::Key, #krate::KeyError> { #previous })()
        };
        quote!(#krate::Identity::with_previous(#key?, #previous))
    } else {
        quote!(#krate::Identity::key(#key?))
    };
    quote! {
        fn prepare(
            &self,
            __inboxed_received: &#krate::Received,
            __inboxed_decoder: &__Decoder,
        ) -> ::core::result::Result<#krate::__private::Prepared, #krate::Refusal> {
            #krate::__private::prepare(
                __inboxed_received,
                __inboxed_decoder,
                |__inboxed_message: &#ty| ::core::result::Result::Ok(#identity),
            )
        }
    }
}

fn run(function: &Function, handler: &Handler, krate: &Path) -> TokenStream {
    let db = database(&handler.connection, krate);
    let arguments = function.parameters().enumerate().map(|(index, parameter)| {
        let (ty, (span, krate)) = (&parameter.ty, place(&parameter.ty, krate));
        match Role::of(ty) {
            _ if index == handler.message => {
                quote_spanned!(span=> #krate::__private::message::<#ty>(__inboxed_message)?)
            }
            Role::Transaction => quote_spanned!(span=> #krate::__private::transaction(&mut __inboxed_parts)?),
            _ => quote_spanned!(span=> <#ty as #krate::FromParts<'_, _, _>>::from_parts(&mut __inboxed_parts)?),
        }
    });
    let result = {
        let (span, krate) = place(&handler.result, krate);
        quote_spanned!(span=> #krate::BodyResult::into_result(__inboxed_result))
    };
    // A body that can't move between threads is reported at the handler's name.
    let future = {
        let (span, krate) = place(&function.sig.ident, krate);
        quote_spanned! {span=>
            #krate::__private::body(async move {
                let __inboxed_result = Self::effect(#(#arguments),*).await;
                #result
            })
        }
    };
    // A connection of no inbox is reported once, since all that names its database stands at one place.
    let (span, krate) = place(&handler.connection, krate);
    quote_spanned! {span=>
        fn run<'__run>(
            &'__run self,
            __inboxed_message: #krate::__private::AnyMessage,
            mut __inboxed_parts: #krate::Parts<'__run, #db, __State>,
        ) -> #krate::__private::BoxFuture<'__run, ::core::result::Result<(), #krate::Error>> {
            #future
        }
    }
}

/// The database of the transaction's connection.
fn database(connection: &Type, krate: &Path) -> TokenStream {
    let (span, krate) = place(connection, krate);
    quote_spanned!(span=> <#connection as #krate::InboxConnection>::Db)
}

/// The place of these tokens, and the runtime's path as if written there.
fn place(tokens: &impl Spanned, krate: &Path) -> (Span, TokenStream) {
    let span = call_site(tokens.span());
    (span, at(span, krate))
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
        Some(connection) => (None, database(connection, krate)),
        None => (Some(quote!(__Db: #krate::store::Store,)), quote!(__Db)),
    };
    quote! {
        #cfgs
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

/// The conditions under which the function exists, and with it every item made of it. A deprecated handler is no
/// reason to warn of its own items.
fn conditions(attrs: &[Attribute]) -> TokenStream {
    let cfgs = attrs.iter().filter(|attr| is(attr, &["cfg"]));
    let deprecated = attrs.iter().any(|attr| is(attr, &["deprecated"])).then(|| quote!(#[allow(deprecated)]));
    quote!(#(#cfgs)* #deprecated)
}

fn is(attr: &Attribute, names: &[&str]) -> bool {
    names.iter().any(|name| attr.path().is_ident(name))
}
