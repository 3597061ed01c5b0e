//! The business key of a message: canonical ASCII, the same bytes on every database.

use std::fmt::{self, Write as _};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::{Digest, Sha256};

use crate::key_part::KeyPart;

/// The longest key in bytes; a longer one keeps a prefix and is told apart by its digest.
pub const MAX_KEY_BYTES: usize = 255;

/// Everything that RFC 3986 doesn't call unreserved is encoded, so no part can forge a separator.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A template's literals keep their separators.
const LITERAL_ENCODED: &AsciiSet = &ENCODED.remove(b':').remove(b'/');

/// The name that makes two deliveries one message.
///
/// At most [`MAX_KEY_BYTES`] of `A-Z a-z 0-9 - . _ ~ : / % #`. A handler may take it as a `&Key` parameter.
///
/// ```
/// use inboxed_runtime::KeyWriter;
/// let key = KeyWriter::new().literal("order:").part("id", &42_u64)?.literal(":").part("city", "São Paulo")?.finish()?;
/// assert_eq!(key.as_str(), "order:42:S%C3%A3o%20Paulo");
/// # Ok::<(), inboxed_runtime::KeyError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(Box<str>);

/// Why a message has no key. No retry can cure it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// Every message with an empty part would be the same message. Nothing but white space is empty.
    #[error("the key part `{part}` is empty: every such message would count as the same one; send a value in it")]
    Empty {
        /// The part, as the key's template names it.
        part: String,
    },
    /// A key read back from outside has a character that no written key has.
    #[error("{key:?} is not a key: at most 255 of `A-Z a-z 0-9 - . _ ~ : / % #`")]
    Alphabet {
        /// The text as it was found.
        key: String,
    },
}

impl Key {
    /// Reads a key back from its text, as a database or an operator gives it.
    ///
    /// ```
    /// use inboxed_runtime::Key;
    /// assert!(Key::parse("order:42").is_ok());
    /// assert!(Key::parse("order 42'--").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/%#".contains(&byte);
        if text.is_empty() || text.len() > MAX_KEY_BYTES || !text.bytes().all(valid) {
            return Err(KeyError::Alphabet { key: text.to_owned() });
        }
        Ok(Self(text.into()))
    }

    /// The key's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 16 bytes of the SHA-256 of the key's text, as 32 hexadecimal digits.
    pub(crate) fn digest(&self) -> Self {
        let digest = Sha256::digest(self.0.as_bytes());
        let mut text = String::with_capacity(32);
        for byte in &digest[..16] {
            let _ = write!(text, "{byte:02x}");
        }
        Self(text.into())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for Key {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Writes a key from literals and parts; the attribute's templates expand to it.
#[derive(Debug, Default)]
pub struct KeyWriter {
    text: String,
    part: &'static str,
}

impl KeyWriter {
    /// An empty key.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a literal of the template, which the attribute has checked at compile time: characters beyond
    /// `A-Z a-z 0-9 - . _ ~ : /` are encoded.
    #[must_use]
    pub fn literal(mut self, literal: &'static str) -> Self {
        self.text.extend(utf8_percent_encode(literal, LITERAL_ENCODED));
        self
    }

    /// Appends one part under the name that an error shows.
    ///
    /// # Errors
    /// [`KeyError::Empty`] if the part, or a member of it, is empty.
    pub fn part<P: KeyPart + ?Sized>(mut self, name: &'static str, part: &P) -> Result<Self, KeyError> {
        self.within(name, |key| part.write(key))?;
        Ok(self)
    }

    /// Runs what writes the part of this name, and makes sure that it wrote something.
    pub(crate) fn within(
        &mut self,
        name: &'static str,
        write: impl FnOnce(&mut Self) -> Result<(), KeyError>,
    ) -> Result<(), KeyError> {
        self.part = name;
        let before = self.text.len();
        write(self)?;
        if self.text.len() == before { Err(self.empty()) } else { Ok(()) }
    }

    fn empty(&self) -> KeyError {
        KeyError::Empty { part: self.part.to_owned() }
    }

    /// Appends text percent-encoded. Every [`KeyPart`] ends here.
    ///
    /// # Errors
    /// [`KeyError::Empty`] if the text is empty or white space only.
    pub fn text(&mut self, text: &str) -> Result<(), KeyError> {
        if text.trim().is_empty() {
            return Err(self.empty());
        }
        self.text.extend(utf8_percent_encode(text, ENCODED));
        Ok(())
    }

    /// Appends the `:` between two members of a tuple.
    pub fn separator(&mut self) {
        self.text.push(':');
    }

    /// The finished key; beyond [`MAX_KEY_BYTES`] a prefix, `#` and the SHA-256 of the whole.
    ///
    /// # Errors
    /// [`KeyError::Empty`] if nothing was appended.
    pub fn finish(self) -> Result<Key, KeyError> {
        if self.text.is_empty() {
            return Err(KeyError::Empty { part: "key".to_owned() });
        }
        if self.text.len() <= MAX_KEY_BYTES {
            return Ok(Key(self.text.into()));
        }
        let digest = Sha256::digest(self.text.as_bytes());
        let mut text = self.text;
        text.truncate(MAX_KEY_BYTES - 1 - 2 * digest.len());
        text.push('#');
        for byte in digest {
            let _ = write!(text, "{byte:02x}");
        }
        Ok(Key(text.into()))
    }
}
