//! What may stand in a key: values that are the same on every delivery and have one spelling.

use crate::key::{KeyError, KeyWriter};

/// A value that may be part of a key: it is the same on every delivery and has exactly one spelling.
///
/// Implemented for integers, `bool`, `char`, strings and tuples, and behind features of their names for `uuid::Uuid` and
/// the dates of `chrono` and `time`; a moment is spelled in UTC. Newtypes and fieldless enums get it by `#[derive(KeyPart)]`.
///
/// Text of nothing but white space counts as empty, and an empty part is refused when the message comes.
///
/// Floats, `Option`, collections, `Instant` and `SystemTime` don't implement it: see `docs/errors`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be part of a key",
    label = "not a key part",
    note = "a key part is the same on every delivery and has one spelling: integers, `bool`, `char`, strings, `Uuid`, and what derives `inboxed::KeyPart`"
)]
pub trait KeyPart {
    /// Writes the value through [`KeyWriter::text`].
    ///
    /// # Errors
    /// [`KeyError::Empty`] if the value is empty.
    fn write(&self, key: &mut KeyWriter) -> Result<(), KeyError>;
}

impl<P: KeyPart + ?Sized> KeyPart for &P {
    fn write(&self, key: &mut KeyWriter) -> Result<(), KeyError> {
        (**self).write(key)
    }
}

impl KeyPart for str {
    fn write(&self, key: &mut KeyWriter) -> Result<(), KeyError> {
        key.text(self)
    }
}

macro_rules! as_str {
    ($($type:ty),*) => {$(
        impl KeyPart for $type {
            fn write(&self, key: &mut KeyWriter) -> Result<(), KeyError> {
                key.text(self)
            }
        }
    )*};
}
as_str!(String, Box<str>, std::sync::Arc<str>, std::rc::Rc<str>, std::borrow::Cow<'_, str>);

macro_rules! by_display {
    ($($type:ty),*) => {$(
        impl KeyPart for $type {
            fn write(&self, key: &mut KeyWriter) -> Result<(), KeyError> {
                key.text(&self.to_string())
            }
        }
    )*};
}
by_display!(u8, u16, u32, u64, u128, usize, i8, i16, i32, i64, i128, isize, bool, char);

#[cfg(feature = "uuid")]
by_display!(uuid::Uuid);

#[cfg(feature = "chrono")]
mod chrono;
#[cfg(feature = "time")]
mod time;

/// A moment of UTC, spelled alike whichever crate it came from: RFC 3339, the fraction without trailing zeros.
#[cfg(any(feature = "chrono", feature = "time"))]
fn moment(date: &dyn std::fmt::Display, [hour, minute, second, nanosecond]: [u32; 4]) -> String {
    // chrono counts a leap second as a second of more than 1,000,000,000 nanoseconds.
    let (second, nanosecond) = (second + nanosecond / 1_000_000_000, nanosecond % 1_000_000_000);
    let fraction = format!(".{nanosecond:09}");
    let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
    format!("{date}T{hour:02}:{minute:02}:{second:02}{fraction}Z")
}

macro_rules! tuple {
    ($first:ident $($rest:ident)*) => {
        impl<$first: KeyPart, $($rest: KeyPart),*> KeyPart for ($first, $($rest,)*) {
            #[allow(non_snake_case, reason = "the type parameters name the members")]
            fn write(&self, key: &mut KeyWriter) -> Result<(), KeyError> {
                let ($first, $($rest,)*) = self;
                $first.write(key)?;
                $(
                    key.separator();
                    $rest.write(key)?;
                )*
                Ok(())
            }
        }
    };
}
tuple!(A);
tuple!(A B);
tuple!(A B C);
tuple!(A B C D);
tuple!(A B C D E);
tuple!(A B C D E F);
