//! The values of bookkeeping statements, the same on every database.

use std::fmt::Write as _;

/// An argument or a column of a bookkeeping statement.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Value {
    /// SQL's NULL.
    Null,
    /// A 64-bit integer; times are microseconds since 1970.
    Int(i64),
    /// Text, compared byte by byte.
    Text(String),
    /// Exact bytes.
    Blob(Vec<u8>),
    /// The 16 bytes of a key's digest.
    Digest([u8; 16]),
}

/// One row that a bookkeeping statement fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row(pub(crate) Vec<Value>);

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<u32> for Value {
    fn from(value: u32) -> Self {
        Self::Int(i64::from(value))
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(value)
    }
}

impl From<&[u8]> for Value {
    fn from(value: &[u8]) -> Self {
        Self::Blob(value.to_owned())
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl Row {
    /// The column as an integer.
    pub(crate) fn int(&self, index: usize) -> Result<i64, sqlx::Error> {
        match self.0.get(index) {
            Some(Value::Int(value)) => Ok(*value),
            other => Err(mismatch(index, "an integer", other)),
        }
    }

    /// The column as a count; a negative one, which only a foreign hand can have written, is nought.
    pub(crate) fn count(&self, index: usize) -> Result<u32, sqlx::Error> {
        self.int(index).map(|value| u32::try_from(value.max(0)).unwrap_or(u32::MAX))
    }

    /// The column as text.
    pub(crate) fn text(&self, index: usize) -> Result<&str, sqlx::Error> {
        match self.0.get(index) {
            Some(Value::Text(value)) => Ok(value),
            other => Err(mismatch(index, "text", other)),
        }
    }

    /// The column as a claim's key: text, or the hexadecimal digits of a digest.
    pub(crate) fn held_key(&self, index: usize) -> Result<String, sqlx::Error> {
        match self.0.get(index) {
            Some(Value::Text(text)) => Ok(text.clone()),
            Some(Value::Digest(digest)) => Ok(hex(digest)),
            Some(Value::Blob(digest)) if digest.len() == 16 => Ok(hex(digest)),
            other => Err(mismatch(index, "a key", other)),
        }
    }

    /// The bytes of a column of any kind but a number.
    pub(crate) fn bytes(&self, index: usize) -> Result<&[u8], sqlx::Error> {
        match self.0.get(index) {
            Some(Value::Text(text)) => Ok(text.as_bytes()),
            Some(Value::Blob(bytes)) => Ok(bytes),
            Some(Value::Digest(bytes)) => Ok(bytes),
            other => Err(mismatch(index, "text or bytes", other)),
        }
    }

    /// The column as bytes.
    pub(crate) fn blob(&self, index: usize) -> Result<&[u8], sqlx::Error> {
        match self.0.get(index) {
            Some(Value::Blob(value)) => Ok(value),
            other => Err(mismatch(index, "bytes", other)),
        }
    }

    /// Reads the column unless it is NULL.
    pub(crate) fn optional<'r, T>(
        &'r self,
        index: usize,
        read: impl FnOnce(&'r Self, usize) -> Result<T, sqlx::Error>,
    ) -> Result<Option<T>, sqlx::Error> {
        match self.0.get(index) {
            Some(Value::Null) => Ok(None),
            _ => read(self, index).map(Some),
        }
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn mismatch(index: usize, expected: &str, found: Option<&Value>) -> sqlx::Error {
    let found = match found {
        None => "no such column",
        Some(Value::Null) => "NULL",
        Some(Value::Int(_)) => "an integer",
        Some(Value::Text(_)) => "text",
        Some(Value::Blob(_) | Value::Digest(_)) => "bytes",
    };
    sqlx::Error::ColumnDecode {
        index: index.to_string(),
        source: format!("expected {expected}, found {found}; `Inbox::verify` tells how the tables differ").into(),
    }
}
