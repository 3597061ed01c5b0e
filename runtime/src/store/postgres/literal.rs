//! Values as SQL literals.
//!
//! The inbox's own statements bind nothing: they are single texts, so that several go in one round trip and none leaves a
//! prepared statement behind, which a pooler would hand to somebody else.

use std::fmt::Write as _;

use crate::key::Key;
use crate::store::Value;
use crate::store::value::hex;

/// Appends a key, checking its alphabet again: nothing in it can end a literal.
pub(super) fn key(sql: &mut String, key: &str) -> Result<(), sqlx::Error> {
    let key = Key::parse(key).map_err(|error| sqlx::Error::Encode(error.into()))?;
    sql.push('\'');
    sql.push_str(key.as_str());
    sql.push('\'');
    Ok(())
}

/// The statement with its `?` filled in.
pub(super) fn fill(template: &str, values: &[Value]) -> Result<String, sqlx::Error> {
    let mut sql = String::with_capacity(template.len() + 32 * values.len());
    let mut values = values.iter();
    let mut pieces = template.split('?');
    sql.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        let value = values.next().ok_or_else(|| encode("fewer arguments than places"))?;
        append(&mut sql, value)?;
        sql.push_str(piece);
    }
    match values.next() {
        None => Ok(sql),
        Some(_) => Err(encode("more arguments than places")),
    }
}

fn append(sql: &mut String, value: &Value) -> Result<(), sqlx::Error> {
    match value {
        Value::Null => sql.push_str("NULL"),
        // With the cast, `-` before it and a type that depends on the number's size can't change the meaning.
        Value::Int(value) => {
            let _ = write!(sql, "'{value}'::bigint");
        }
        Value::Text(text) => self::text(sql, text)?,
        Value::Blob(bytes) => {
            // No `\x`, whose meaning depends on the server's settings.
            sql.push_str("decode('");
            for byte in bytes {
                let _ = write!(sql, "{byte:02x}");
            }
            sql.push_str("', 'hex')");
        }
        Value::Digest(bytes) => {
            let _ = write!(sql, "'{}'::uuid", hex(bytes));
        }
    }
    Ok(())
}

/// An `E` literal, whose escapes don't depend on the server's settings.
fn text(sql: &mut String, text: &str) -> Result<(), sqlx::Error> {
    if text.contains('\0') {
        return Err(encode("Postgres takes no text with a NUL in it"));
    }
    sql.push_str("E'");
    for character in text.chars() {
        match character {
            '\'' => sql.push_str("''"),
            '\\' => sql.push_str("\\\\"),
            other => sql.push(other),
        }
    }
    sql.push_str("'::text");
    Ok(())
}

fn encode(why: &'static str) -> sqlx::Error {
    sqlx::Error::Encode(why.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_ends_its_literal() {
        let texts = ["", "it's", r"a\", r"\'", "?", "$1", "'; DROP TABLE inbox; --", "\u{1f418}"];
        let filled = texts.map(|value| fill("?", &[value.into()]).unwrap());
        assert_eq!(
            filled,
            [
                "E''::text",
                "E'it''s'::text",
                r"E'a\\'::text",
                r"E'\\'''::text",
                "E'?'::text",
                "E'$1'::text",
                "E'''; DROP TABLE inbox; --'::text",
                "E'\u{1f418}'::text",
            ]
        );
        fill("?", &["a\0b".into()]).unwrap_err();
    }

    #[test]
    fn every_place_has_its_value() {
        let values = [Value::Int(i64::MIN), Value::Null, Value::Blob(vec![0, 255])];
        let filled = fill("VALUES (?, ?, ?)", &values).unwrap();
        assert_eq!(filled, "VALUES ('-9223372036854775808'::bigint, NULL, decode('00ff', 'hex'))");
        fill("?", &[]).unwrap_err();
        fill("", &[Value::Null]).unwrap_err();
    }

    #[test]
    fn p06_no_key_of_another_alphabet_reaches_a_statement() {
        for text in ["", "a'b", "a\\b", "a b", "a\0b", "\u{e9}"] {
            key(&mut String::new(), text).unwrap_err();
        }
        let mut sql = String::new();
        key(&mut sql, "order:1/%C3%A9#~").unwrap();
        assert_eq!(sql, "'order:1/%C3%A9#~'");
    }
}
