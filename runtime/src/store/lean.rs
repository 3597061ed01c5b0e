//! Lean rows: a claim holds 16 bytes of its key's digest in place of the text.
//!
//! The *held* form of a key is what the tables' `message_key` has: the text, or the digest as hexadecimal digits, which is
//! a key too. So the claims are written once, and differ in their literals only.

use std::borrow::Cow;

use super::{Claim, Inbox, Store, Value};
use crate::handler::Identity;
use crate::key::Key;

/// The bytes of 32 hexadecimal digits.
pub(crate) fn digest_of_hex(text: &str) -> Option<[u8; 16]> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten().map(u128::to_be_bytes)
}

impl<Db: Store> Inbox<Db> {
    /// Whether claims hold digests.
    pub(crate) fn is_lean(&self) -> bool {
        self.tables().is_lean()
    }

    /// The claims with their keys in the held form.
    pub(crate) fn hold<'c>(&self, claims: &'c [Claim]) -> Cow<'c, [Claim]> {
        if !self.is_lean() {
            return Cow::Borrowed(claims);
        }
        let held = claims.iter().map(|claim| {
            let Identity::Key { key, previous } = &claim.identity;
            let identity = Identity::Key { key: key.digest(), previous: previous.as_ref().map(Key::digest) };
            Claim { consumer: claim.consumer, identity, payload: claim.payload }
        });
        Cow::Owned(held.collect())
    }

    /// A key that is in the held form already, as a value.
    pub(crate) fn held(&self, key: &str) -> Value {
        let digest = if self.is_lean() { digest_of_hex(key) } else { None };
        digest.map_or_else(|| key.into(), Value::Digest)
    }

    /// A message's key in the held form, as a value.
    pub(crate) fn held_of(&self, key: &Key) -> Value {
        if self.is_lean() { self.held(key.digest().as_str()) } else { key.as_str().into() }
    }

    /// The values of `{key_columns}`: the held form, and its text beside a digest.
    pub(crate) fn key_values(&self, key: Option<&Key>) -> Vec<Value> {
        let held = key.map_or(Value::Null, |key| self.held_of(key));
        if self.is_lean() { vec![held, key.map(Key::as_str).into()] } else { vec![held] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::value::hex;

    #[test]
    fn a_digest_is_the_start_of_sha_256() {
        let digest = Key::parse("abc").unwrap().digest();
        assert_eq!(digest.as_str(), "ba7816bf8f01cfea414140de5dae2223");
        let bytes = digest_of_hex(digest.as_str()).unwrap();
        assert_eq!((bytes[0], bytes[15], hex(&bytes)), (0xba, 0x23, digest.as_str().to_owned()));
        for other in ["", "abc", "+a7816bf8f01cfea414140de5dae2223", "ga7816bf8f01cfea414140de5dae2223"] {
            assert_eq!(digest_of_hex(other), None, "{other}");
        }
    }
}
