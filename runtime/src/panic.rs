//! Panics of the user's code: none may end the task that answers for a delivery.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the user's code; its panic is an error with the panic's text.
pub(crate) fn guard<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(text)
}

/// A panic's text. Its payload is the user's too, and may panic when it is dropped.
pub(crate) fn text(panic: Box<dyn Any + Send>) -> String {
    let text = panic.downcast_ref::<&str>().map(ToString::to_string);
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no text".to_owned());
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
        std::mem::forget(second);
    }
    text
}
