//! Why a type can't be part of a key: each refused type has a compile error of its own that names the field.
//!
//! A trait has one text, so each reason is a trait of its own. A refused type's verdict lacks the one of its reason.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::{Instant, SystemTime};

use crate::key::{KeyError, KeyWriter};
use crate::key_part::KeyPart;

/// A value that stands in a key under the name `Name`, an empty type that the attribute makes for the compile error.
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be part of a key (here `{Name}`): it isn't known to have one spelling that is the same on each delivery\n\nhelp: put `#[derive(inboxed::KeyPart)]` on it if it is a newtype or a fieldless enum, else name its fields in the key",
    label = "not a key part"
)]
pub trait Part<Name> {
    /// `Accepted`, or the reason why not.
    type Verdict;

    /// Writes the value.
    ///
    /// # Errors
    /// [`KeyError::Empty`] if the value is empty.
    fn write_part(&self, key: &mut KeyWriter) -> Result<(), KeyError>;
}

#[diagnostic::do_not_recommend]
impl<Name, P: KeyPart + ?Sized> Part<Name> for P {
    type Verdict = Accepted;

    fn write_part(&self, key: &mut KeyWriter) -> Result<(), KeyError> {
        self.write(key)
    }
}

/// The type is a [`KeyPart`].
#[derive(Debug)]
pub struct Accepted;

/// A verdict with nothing against it.
pub trait Stable<Name> {}

impl<Name> Stable<Name> for Accepted {}

macro_rules! refused {
    ($verdict:ident: $([$($generics:tt)*] $type:ty),+) => {$(
        #[diagnostic::do_not_recommend]
        impl<Name, $($generics)*> Part<Name> for $type {
            type Verdict = $verdict;

            fn write_part(&self, _: &mut KeyWriter) -> Result<(), KeyError> {
                Err(KeyError::Empty { part: stringify!($verdict).to_owned() })
            }
        }
    )+};
}

/// A float.
#[derive(Debug)]
pub struct Float;

/// Implemented by no name, so that the compile error is this trait's.
#[diagnostic::on_unimplemented(
    message = "the key part `{Self}` is a float: one amount has several spellings (0.1 + 0.2 is not 0.3, -0 is 0), so a message that is sent again could have another key\n\nhelp: send an integer, such as cents, or the text that the producer wrote",
    label = "a float in a key"
)]
pub trait NotFloat {}

impl<Name: NotFloat> Stable<Name> for Float {}

refused!(Float: [] f32, [] f64);

/// A value that may be missing.
#[derive(Debug)]
pub struct Optional;

/// Implemented by no name, so that the compile error is this trait's.
#[diagnostic::on_unimplemented(
    message = "the key part `{Self}` is an `Option`: all messages without it would have the same key, and only the first would run\n\nhelp: make the field required, so that a message without it is kept as a dead letter; or decide in an expression what identifies such a message",
    label = "an optional key part"
)]
pub trait NotOptional {}

impl<Name: NotOptional> Stable<Name> for Optional {}

refused!(Optional: [T] Option<T>);

/// A list.
#[derive(Debug)]
pub struct List;

/// Implemented by no name, so that the compile error is this trait's.
#[diagnostic::on_unimplemented(
    message = "the key part `{Self}` is a list: the order and number of its items can change when the message is built again, and the key with them\n\nhelp: use the id that the producer gave to the message, or one that the list belongs to",
    label = "a list in a key"
)]
pub trait NotList {}

impl<Name: NotList> Stable<Name> for List {}

refused!(List: [T] Vec<T>);

/// A map or a set.
#[derive(Debug)]
pub struct Map;

/// Implemented by no name, so that the compile error is this trait's.
#[diagnostic::on_unimplemented(
    message = "the key part `{Self}` is a map or a set: its entries have no order that is the same in every process, and so no one spelling\n\nhelp: use the id that the producer gave to the message, or one value of the map that every message has",
    label = "a map in a key"
)]
pub trait NotMap {}

impl<Name: NotMap> Stable<Name> for Map {}

refused!(Map: [K, V, H] HashMap<K, V, H>, [K, V] BTreeMap<K, V>, [T, H] HashSet<T, H>, [T] BTreeSet<T>);

/// A time by this process's clock.
#[derive(Debug)]
pub struct ProcessClock;

/// Implemented by no name, so that the compile error is this trait's.
#[diagnostic::on_unimplemented(
    message = "the key part `{Self}` is an `Instant`: it counts from this process's own start, so a redelivery to another process has another key\n\nhelp: use the id that the producer gave to the message",
    label = "this process's clock in a key"
)]
pub trait NotProcessClock {}

impl<Name: NotProcessClock> Stable<Name> for ProcessClock {}

refused!(ProcessClock: [] Instant);

/// A time by this machine's clock.
#[derive(Debug)]
pub struct WallClock;

/// Implemented by no name, so that the compile error is this trait's.
#[diagnostic::on_unimplemented(
    message = "the key part `{Self}` is a `SystemTime`: a time is taken anew when the producer sends again, and its precision differs between systems\n\nhelp: use the id that the producer gave to the message; if a time is truly part of it, send it as text or as whole seconds",
    label = "a clock's time in a key"
)]
pub trait NotWallClock {}

impl<Name: NotWallClock> Stable<Name> for WallClock {}

refused!(WallClock: [] SystemTime);

/// Appends one part of a template to the key.
///
/// # Errors
/// [`KeyError::Empty`] if the value is empty.
pub fn part<Name, P>(mut key: KeyWriter, name: &'static str, value: &P) -> Result<KeyWriter, KeyError>
where
    P: Part<Name> + ?Sized,
    P::Verdict: Stable<Name>,
{
    key.within(name, |key| value.write_part(key))?;
    Ok(key)
}

/// Writes the value inside a newtype.
///
/// # Errors
/// [`KeyError::Empty`] if the value is empty.
pub fn write<Name, P>(value: &P, key: &mut KeyWriter) -> Result<(), KeyError>
where
    P: Part<Name> + ?Sized,
    P::Verdict: Stable<Name>,
{
    value.write_part(key)
}
