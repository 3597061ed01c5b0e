//! From what was written to what can be emitted: only a [`Handler`] expands.

use std::time::Duration;

use syn::{Error, Expr, ReturnType, Type};

use crate::args::Args;
use crate::errors::{Errors, function as errors, options};
use crate::expression::{Bindings, bindings};
use crate::key::{KeySource, literal};
use crate::model::{Function, Role, last_segment};

/// A handler that keeps every rule that its text can show.
#[derive(Debug)]
pub(crate) struct Handler {
    pub consumer: String,
    pub key: KeySource,
    pub previous_key: Option<KeySource>,
    pub retention: Option<Duration>,
    pub timeout: Option<Duration>,
    pub dead_letter_conflicts: bool,
    /// The message's position among the parameters.
    pub message: usize,
    /// The type behind the transaction's `&mut`.
    pub connection: Type,
    /// What the body returns.
    pub result: Type,
}

pub(crate) fn validate(args: &Args, function: &Function, errors: &mut Errors) -> Option<Handler> {
    signature(function, errors);
    let message = message(function, errors);
    let connection = transaction(function, errors);
    let result = match &function.sig.output {
        ReturnType::Type(_, ty) => Some((**ty).clone()),
        ReturnType::Default => {
            errors.push(errors::no_result(&function.sig.ident));
            None
        }
    };
    let names = names(function, message);
    let key = key(args.key.as_ref(), message.is_some(), &names, errors);
    let previous_key = match &args.previous_key {
        Some(previous) => self::key(Some(previous), message.is_some(), &names, errors).map(Some),
        None => Some(None),
    };
    if let (Some(KeySource::Template(key)), Some(Some(KeySource::Template(previous)))) = (&key, &previous_key)
        && key.source == previous.source
    {
        errors.push(options::same_previous_key(&args.previous_key));
    }
    let retention = duration(args.retention.as_ref(), "retention", errors);
    let timeout = duration(args.timeout.as_ref(), "timeout", errors);
    let dead_letter_conflicts = on_conflict(args.on_conflict.as_ref(), errors);
    let consumer = consumer(args.consumer.as_ref(), function, errors);
    if !errors.is_empty() {
        return None;
    }
    Some(Handler {
        consumer: consumer?,
        key: key?,
        previous_key: previous_key?,
        retention,
        timeout,
        dead_letter_conflicts: dead_letter_conflicts?,
        message: message?,
        connection: connection?,
        result: result?,
    })
}

fn signature(function: &Function, errors: &mut Errors) {
    let sig = &function.sig;
    if sig.asyncness.is_none() {
        errors.push(errors::not_async(sig.fn_token));
    }
    if let Some(constness) = &sig.constness {
        errors.push(errors::qualified(constness));
    }
    if !matches!(sig.safety, syn::Safety::Default) {
        errors.push(errors::qualified(&sig.safety));
    }
    if let Some(abi) = &sig.abi {
        errors.push(errors::qualified(abi));
    }
    if let Some(variadic) = &sig.variadic {
        errors.push(errors::qualified(variadic));
    }
    if let Some(receiver) = sig.receiver() {
        errors.push(errors::receiver(receiver));
    }
    if let Some(parameter) = function.parameter_named_like_it() {
        errors.push(errors::parameter_named_like_handler(parameter));
    }
    if !sig.generics.params.is_empty() {
        errors.push(errors::generics(&sig.generics));
    } else if let Some(clause) = &sig.generics.where_clause {
        errors.push(errors::generics(clause));
    }
    for parameter in function.parameters() {
        if let Type::ImplTrait(generic) = &*parameter.ty {
            errors.push(errors::generics(generic));
        }
    }
}

/// The message is the first parameter taken by value that isn't a `State<T>`.
fn message(function: &Function, errors: &mut Errors) -> Option<usize> {
    let by_value = |ty: &Type| matches!(Role::of(ty), Role::Value | Role::Pool | Role::SqlxTransaction);
    let Some((index, parameter)) = function.parameters().enumerate().find(|(_, parameter)| by_value(&parameter.ty))
    else {
        errors.push(errors::no_message(function.parameter_list()));
        return None;
    };
    if last_segment(&parameter.ty).as_deref() == Some("Vec") {
        errors.push(errors::message_list(&parameter.ty));
    }
    Some(index)
}

fn transaction(function: &Function, errors: &mut Errors) -> Option<Type> {
    let mut connection = None;
    let mut refused = false;
    for parameter in function.parameters() {
        match (Role::of(&parameter.ty), &*parameter.ty) {
            (Role::Pool, ty) => {
                errors.push(errors::pool(ty));
                refused = true;
            }
            (Role::SqlxTransaction, ty) => {
                errors.push(errors::sqlx_transaction(ty));
                refused = true;
            }
            (Role::Transaction, ty) if connection.is_some() => errors.push(errors::second_transaction(ty)),
            (Role::Transaction, Type::Reference(reference)) => connection = Some((*reference.elem).clone()),
            _ => {}
        }
    }
    if connection.is_none() && !refused {
        errors.push(errors::no_transaction(function.parameter_list()));
    }
    connection
}

/// The names that the parameters bind, for keys that are expressions.
fn names(function: &Function, message: Option<usize>) -> Bindings {
    let mut names = Bindings::default();
    for (index, parameter) in function.parameters().enumerate() {
        let bound = bindings(&parameter.pat);
        if Some(index) == message {
            names.message = bound;
        } else {
            let role = Role::of(&parameter.ty);
            names.others.extend(bound.into_iter().map(|name| (name, role)));
        }
    }
    names
}

fn key(key: Option<&Expr>, message: bool, names: &Bindings, errors: &mut Errors) -> Option<KeySource> {
    let Some(key) = key else { return Some(KeySource::Contract) };
    // Without a message every expression would be a constant: that error is reported already.
    if !message && literal(key).is_none() {
        return None;
    }
    errors.keep(KeySource::parse(key, names))
}

fn duration(value: Option<&Expr>, option: &str, errors: &mut Errors) -> Option<Duration> {
    let value = value?;
    let parsed = literal(value)
        .ok_or_else(|| options::not_text(value, option))
        .and_then(|text| parse_duration(&text.value()).ok_or_else(|| options::duration(text, option)));
    errors.keep(parsed)
}

/// A whole number above zero and its unit.
fn parse_duration(text: &str) -> Option<Duration> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let number = number.parse::<u64>().ok().filter(|&number| number > 0)?;
    let milliseconds = match unit.trim_start() {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    number.checked_mul(milliseconds).map(Duration::from_millis)
}

fn on_conflict(value: Option<&Expr>, errors: &mut Errors) -> Option<bool> {
    let Some(value) = value else { return Some(false) };
    let parsed = match literal(value).map(syn::LitStr::value).as_deref() {
        Some("acknowledge") => Ok(false),
        Some("dead_letter") => Ok(true),
        _ => Err(options::on_conflict(value)),
    };
    errors.keep(parsed)
}

fn consumer(value: Option<&Expr>, function: &Function, errors: &mut Errors) -> Option<String> {
    let Some(value) = value else {
        return Some(function.sig.ident.to_string().trim_start_matches("r#").to_owned());
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    let named = literal(value).ok_or_else(|| options::not_text(value, "consumer")).and_then(|literal| {
        let name = literal.value();
        let valid = (1..=100).contains(&name.len()) && name.chars().all(allowed);
        if valid { Ok(name) } else { Err::<_, Error>(options::consumer(literal)) }
    });
    errors.keep(named)
}
