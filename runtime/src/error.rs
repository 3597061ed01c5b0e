//! The error of a handler's body, and how the pipeline answers it.

use std::any::Any;
use std::error::Error as StdError;
use std::fmt;

use crate::panic;

/// Any boxed error that may cross threads.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// What a handler's body returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure, with the answer the pipeline gives to it.
///
/// It is made by `?` from every standard error, `String` and `&str`, and from `anyhow::Error`. A `sqlx::Error` anywhere
/// in the chain of sources decides the [`Class`] by its code; with the feature `anyhow` that holds inside an
/// `anyhow::Error` too. It is not itself a `std::error::Error`, for the same reason that `anyhow::Error` is not.
///
/// ```
/// use inboxed_runtime::{Class, Error, permanent};
/// let failed = Error::from("the warehouse is closed");
/// assert_eq!(failed.class(), Class::Failure);
/// assert_eq!(permanent("no such product").class(), Class::Permanent);
/// ```
pub struct Error {
    source: BoxError,
    class: Class,
}

/// How the pipeline answers a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// Two transactions met (deadlock, serialisation failure, a busy database): run again at once, a few times, uncounted.
    Contention,
    /// The database can't serve at the moment: given back with a delay, uncounted.
    Unavailable,
    /// The body failed: counted as an attempt, retried later, dead-lettered at the limit.
    Failure,
    /// Retrying can't help: dead-lettered at once.
    Permanent,
}

/// An error that no retry can cure, for helpers whose own error type isn't [`Error`]: it is found anywhere in a chain of
/// sources.
///
/// ```
/// use inboxed_runtime::{Class, Error, Permanent};
/// fn helper() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
///     Err(Permanent::new("unknown currency").into())
/// }
/// assert_eq!(Error::from(helper().unwrap_err()).class(), Class::Permanent);
/// ```
#[derive(Debug)]
pub struct Permanent(BoxError);

/// Marks an error as one that no retry can cure: the message is dead-lettered at once.
///
/// ```
/// # use inboxed_runtime::permanent;
/// fn body(currency: &str) -> inboxed_runtime::Result<()> {
///     match currency {
///         "EUR" => Ok(()),
///         _ => Err(permanent("unknown currency")),
///     }
/// }
/// assert!(body("ZZZ").is_err());
/// ```
pub fn permanent(error: impl Into<BoxError>) -> Error {
    Error { source: error.into(), class: Class::Permanent }
}

impl Error {
    /// An error with a class chosen by the runtime itself.
    pub(crate) fn with_class(error: impl Into<BoxError>, class: Class) -> Self {
        Self { source: error.into(), class }
    }

    /// The same failure of a statement of the inbox's own: never the message's fault, so that it isn't counted.
    pub(crate) fn of_the_inbox(self) -> Self {
        let class = if self.class == Class::Contention { Class::Contention } else { Class::Unavailable };
        Self { class, ..self }
    }

    /// How the pipeline answers this failure.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The error that the body returned.
    pub fn get_ref(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.source
    }

    /// The whole chain of sources on one line, as dead letters and logs show it.
    pub fn chain(&self) -> String {
        panic::guard(|| self.texts()).unwrap_or_else(|text| format!("an error whose text panicked: {text}"))
    }

    fn texts(&self) -> String {
        let mut text = self.source.to_string();
        let mut source = self.source.source();
        while let Some(error) = source {
            let next = error.to_string();
            if !text.ends_with(&next) {
                text.push_str(": ");
                text.push_str(&next);
            }
            source = error.source();
        }
        text
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.class, self.chain())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl<E> From<E> for Error
where
    E: Into<BoxError> + 'static,
{
    fn from(error: E) -> Self {
        // A box made from an `anyhow::Error` hides what is in it, so that one is asked before it is boxed.
        let inside = class_inside_anyhow(&error);
        let source: BoxError = error.into();
        let class = inside.or_else(|| class_of(&*source)).unwrap_or(Class::Failure);
        Self { source, class }
    }
}

impl Permanent {
    /// Wraps the error that explains why no retry can help.
    pub fn new(error: impl Into<BoxError>) -> Self {
        Self(error.into())
    }
}

impl fmt::Display for Permanent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl StdError for Permanent {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source()
    }
}

#[cfg(feature = "anyhow")]
fn class_inside_anyhow(error: &dyn Any) -> Option<Class> {
    error.downcast_ref::<anyhow::Error>().and_then(|error| class_of(error.as_ref()))
}

#[cfg(not(feature = "anyhow"))]
fn class_inside_anyhow(_: &dyn Any) -> Option<Class> {
    None
}

/// The class that a chain of sources decides, if it holds a [`Permanent`] or a `sqlx::Error`.
fn class_of(error: &(dyn StdError + 'static)) -> Option<Class> {
    std::iter::successors(Some(error), |&error| error.source()).find_map(|error| {
        if error.is::<Permanent>() {
            return Some(Class::Permanent);
        }
        error.downcast_ref::<sqlx::Error>().map(crate::store::classify)
    })
}
