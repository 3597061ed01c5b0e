//! What is new on each delivery, told by its name: a function that hides it can't be seen through.

use syn::visit::{self, Visit};
use syn::{Error, Expr, ExprCall, ExprField, ExprMacro, ExprMethodCall, Member, Path};

use crate::errors::key as errors;

const GENERATED: &str = "makes a new value";
const CLOCK: &str = "reads the clock";
const BROKER: &str = "is given anew by the broker";
const COUNTED: &str = "changes";

/// Why a field of this name isn't stable.
pub(crate) fn field(name: &str) -> Option<&'static str> {
    match name {
        "receipt_handle" | "delivery_tag" | "ack_token" | "broker_message_id" | "sqs_message_id" => Some(BROKER),
        "delivery_count" | "redelivered" | "receive_count" => Some(COUNTED),
        _ => None,
    }
}

/// Why a call of this function or method isn't stable.
fn function(name: &str) -> Option<&'static str> {
    match name {
        "new_v1" | "now_v1" | "new_v4" | "now_v6" | "new_v7" | "now_v7" | "nanoid" | "gen_range" | "random"
        | "random_range" | "rng" | "thread_rng" => Some(GENERATED),
        "now" | "now_utc" | "now_local" | "elapsed" => Some(CLOCK),
        "message_id" => Some(BROKER),
        "attempt" | "attempts" => Some(COUNTED),
        _ => field(name),
    }
}

/// Why a call by this path isn't stable: by its last name, or by the crate of random numbers it comes from.
fn path(path: &Path) -> Option<&'static str> {
    let first = path.segments.first().map(|segment| segment.ident.to_string());
    if path.segments.len() > 1 && matches!(first.as_deref(), Some("rand" | "fastrand" | "getrandom" | "nanoid")) {
        return Some(GENERATED);
    }
    path.segments.last().and_then(|segment| function(&segment.ident.to_string()))
}

/// The first place of an expression that is new on each delivery.
pub(crate) fn check(expr: &Expr) -> Result<(), Error> {
    let mut finder = Finder(None);
    finder.visit_expr(expr);
    finder.0.map_or(Ok(()), Err)
}

struct Finder(Option<Error>);

impl Finder {
    fn report(&mut self, at: impl quote::ToTokens, why: &str) {
        let what = crate::expression::source(&at);
        self.0.get_or_insert_with(|| errors::unstable(at, &what, why));
    }
}

impl Visit<'_> for Finder {
    fn visit_expr_call(&mut self, call: &ExprCall) {
        match &*call.func {
            Expr::Path(function) if let Some(why) = path(&function.path) => self.report(call, why),
            _ => visit::visit_expr_call(self, call),
        }
    }

    fn visit_expr_method_call(&mut self, call: &ExprMethodCall) {
        // From the inside out, so that `Uuid::new_v4().to_string()` is reported at its cause.
        visit::visit_expr_method_call(self, call);
        if let Some(why) = function(&call.method.to_string()) {
            self.report(call, why);
        }
    }

    fn visit_expr_field(&mut self, access: &ExprField) {
        match &access.member {
            Member::Named(name) if let Some(why) = field(&name.to_string()) => self.report(access, why),
            _ => visit::visit_expr_field(self, access),
        }
    }

    fn visit_expr_macro(&mut self, call: &ExprMacro) {
        if let Some(why) = path(&call.mac.path) {
            return self.report(call, why);
        }
        // `format!("{}", Uuid::new_v4())` and its kin take expressions parted by commas.
        let arguments = syn::punctuated::Punctuated::<Expr, syn::Token![,]>::parse_terminated;
        for argument in call.mac.parse_body_with(arguments).into_iter().flatten() {
            self.visit_expr(&argument);
        }
    }
}
