//! From bytes to a handler's message.

use std::borrow::Cow;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::error::BoxError;
use crate::message::Received;

/// Makes a handler's message from the bytes of a delivery. A failure dead-letters the message at once, bytes intact.
///
/// [`Json`] is the default; `.handle_with(source, handler, decoder)` takes another.
///
/// ```
/// use inboxed_runtime::{BoxError, Decode, Received};
///
/// struct Csv;
///
/// impl Decode<(String, u64)> for Csv {
///     fn decode(&self, received: &Received) -> Result<(String, u64), BoxError> {
///         let line = std::str::from_utf8(&received.body)?;
///         let (name, count) = line.split_once(',').ok_or("no comma")?;
///         Ok((name.to_owned(), count.parse()?))
///     }
/// }
///
/// assert_eq!(Csv.decode(&Received::new("stock", "nails,12")).unwrap(), ("nails".to_owned(), 12));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't decode a `{M}`",
    note = "with the default `Json` the message needs `#[derive(serde::Deserialize)]`; for another format implement `inboxed::Decode` and register with `.handle_with(source, handler, decoder)`"
)]
pub trait Decode<M>: Send + Sync + 'static {
    /// Decodes the delivery.
    ///
    /// # Errors
    /// Whatever explains to an operator why these bytes aren't a message of this type.
    fn decode(&self, received: &Received) -> Result<M, BoxError>;

    /// The bytes by which a second message under one key is told to be the same again or another, a *key conflict*. A
    /// decoder that opens an envelope answers what is inside: the envelope is new each time the producer sends.
    fn payload<'a>(&self, received: &'a Received) -> Cow<'a, [u8]> {
        Cow::Borrowed(&received.body)
    }
}

/// JSON by `serde_json`: integers keep every digit, and trailing bytes are refused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json;

impl<M: DeserializeOwned> Decode<M> for Json {
    fn decode(&self, received: &Received) -> Result<M, BoxError> {
        Ok(serde_json::from_slice(&received.body)?)
    }
}

/// The bytes as they came, for handlers whose message is `bytes::Bytes`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Raw;

impl Decode<Bytes> for Raw {
    fn decode(&self, received: &Received) -> Result<Bytes, BoxError> {
        Ok(received.body.clone())
    }
}
