//! Messages, between SQS, whose bodies are text and whose attributes are ten at most, and the runtime, which knows bytes and
//! headers.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use aws_sdk_sqs::primitives::Blob;
use aws_sdk_sqs::types::{Message, MessageAttributeValue, MessageSystemAttributeName as System};
use bytes::Bytes;
use data_encoding::BASE64;
use inboxed_runtime::{Headers, Received};

use super::error::SqsError;

/// The header that holds a message's group.
pub(super) const GROUP: &str = "MessageGroupId";

/// The attribute that says that the body is the BASE64 of the message's bytes, which aren't text. It is no header.
const ENCODED: &str = "inboxed-body";
const AS_BASE64: &str = "base64";

/// What such a body begins with: that of no bytes can't be empty.
const PREFIX: &str = "base64,";

/// The most attributes of a message.
const MOST: usize = 10;

/// An id that nobody else has, by the system's randomness and the clock: the service takes a message, or a request, under an id
/// that it knows for one that it has had.
pub(super) fn fresh_id() -> String {
    let part = || RandomState::new().hash_one((SystemTime::now(), std::process::id()));
    format!("{:016x}{:016x}", part(), part())
}

pub(super) type Attributes = HashMap<String, MessageAttributeValue>;

/// A message as the runtime takes it.
pub(super) fn received(source: &Arc<str>, message: Message) -> Received {
    let Message { body, attributes, message_attributes, .. } = message;
    let (system, mut attributes) = (attributes.unwrap_or_default(), message_attributes.unwrap_or_default());
    let body = body.unwrap_or_default();
    let marked = attributes.get(ENCODED).and_then(|value| value.string_value()) == Some(AS_BASE64);
    let encoded = body.strip_prefix(PREFIX).filter(|_| marked);
    let bytes = match encoded.and_then(|encoded| BASE64.decode(encoded.as_bytes()).ok()) {
        Some(bytes) => {
            attributes.remove(ENCODED);
            bytes
        }
        None => body.into_bytes(),
    };
    let mut received = Received::new(Arc::clone(source), bytes);
    if let Some(group) = system.get(&System::MessageGroupId) {
        // The group as a header that was sent on, of another message.
        attributes.retain(|name, _| !name.eq_ignore_ascii_case(GROUP));
        received.headers = headers(attributes);
        received.headers.push(GROUP, group.clone());
    } else {
        received.headers = headers(attributes);
    }
    let figure = |name| system.get(&name)?.parse::<u64>().ok();
    let sent_at = figure(System::SentTimestamp).map(Duration::from_millis);
    received.sent_at = sent_at.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
    let count = figure(System::ApproximateReceiveCount).and_then(|count| u32::try_from(count).ok());
    received.delivery_count = count.unwrap_or(1);
    received.redelivered = received.delivery_count > 1;
    received
}

fn headers(attributes: Attributes) -> Headers {
    // They come in another order each time: a message's copies are to be the same.
    let mut attributes = attributes.into_iter().collect::<Vec<_>>();
    attributes.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
    let bytes = |value: MessageAttributeValue| match value.binary_value {
        Some(binary) => Bytes::from(binary.into_inner()),
        None => Bytes::from(value.string_value.unwrap_or_default()),
    };
    attributes.into_iter().map(|(name, value)| (name, bytes(value))).collect()
}

/// A message's body and attributes as they are sent.
pub(super) fn sent(body: &[u8], headers: &Headers) -> Result<(String, Attributes), SqsError> {
    let mut attributes = Attributes::new();
    for (name, value) in headers.iter() {
        let unfit = |why: &str| SqsError::Message(format!("its header `{name}` {why}"));
        check_name(name).map_err(unfit)?;
        let value = match text(value) {
            Some(text) => attribute("String", Some(text), None),
            None if value.is_empty() => return Err(unfit("is empty, which an attribute can't be")),
            None => attribute("Binary", None, Some(value)),
        };
        if attributes.insert(name.to_owned(), value?).is_some() {
            return Err(unfit("occurs twice, which an attribute can't"));
        }
    }
    let body = if let Some(text) = text(body) {
        text.to_owned()
    } else {
        attributes.insert(ENCODED.to_owned(), attribute("String", Some(AS_BASE64), None)?);
        format!("{PREFIX}{}", BASE64.encode(body))
    };
    if attributes.len() > MOST {
        let count = attributes.len();
        let why = format!("it has {count} attributes, headers and what marks bytes, and SQS takes {MOST}");
        return Err(SqsError::Message(why));
    }
    Ok((body, attributes))
}

fn attribute(kind: &str, text: Option<&str>, bytes: Option<&[u8]>) -> Result<MessageAttributeValue, SqsError> {
    let value = MessageAttributeValue::builder().data_type(kind).set_string_value(text.map(str::to_owned));
    let value = value.set_binary_value(bytes.map(Blob::new)).build();
    value.map_err(|error| SqsError::Message(error.to_string()))
}

/// The bytes as the text that they are, if SQS takes that: not empty, and of the characters of XML.
fn text(bytes: &[u8]) -> Option<&str> {
    let fits =
        |char: char| matches!(char, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..);
    std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty() && text.chars().all(fits))
}

fn check_name(name: &str) -> Result<(), &'static str> {
    let fits = |char: char| char.is_ascii_alphanumeric() || matches!(char, '_' | '-' | '.');
    let begins = |prefix: &str| name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix));
    if name.is_empty() || name.len() > 256 || !name.chars().all(fits) {
        Err("isn't named by letters, digits, `-`, `_` and `.`")
    } else if begins("aws.") || begins("amazon.") || name.starts_with('.') || name.ends_with('.') || name.contains("..")
    {
        Err("is named as only Amazon may, or with a dot at an end")
    } else if name == ENCODED {
        Err("is the mark of a body of bytes")
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(body: &[u8], headers: &Headers) -> Received {
        let (body, attributes) = sent(body, headers).unwrap();
        assert!(!body.is_empty());
        let message = Message::builder().body(body).set_message_attributes(Some(attributes)).build();
        received(&Arc::from("orders"), message)
    }

    #[test]
    fn body_and_headers_arrive_byte_for_byte() {
        let headers = [("Type", &b"Applied"[..]), ("trace", b"\xe4"), ("type", b"\xff\0")];
        let headers = headers.into_iter().map(|(name, value)| (name, Bytes::from_static(value))).collect::<Headers>();
        for body in [&b"{\"a\": \"\xc3\xa4\"}"[..], b"", b"\xff\xfe\0", b"a\0b", b"base64,AAAA", "\u{ffff}".as_bytes()]
        {
            let arrived = there_and_back(body, &headers);
            assert_eq!((&arrived.body[..], &arrived.headers), (body, &headers));
        }
    }

    #[test]
    fn text_is_sent_as_it_is() {
        let (body, attributes) = sent("\u{1f980} \r\n\t".as_bytes(), &Headers::from([("a", "1")])).unwrap();
        assert_eq!((&*body, attributes["a"].string_value()), ("\u{1f980} \r\n\t", Some("1")));
    }

    #[test]
    fn body_of_another_producer_is_decoded_only_where_it_is_marked() {
        let plain = Message::builder().body("base64,AAAA").build();
        assert_eq!(&received(&Arc::from("orders"), plain).body[..], b"base64,AAAA");
        let marked = attribute("String", Some(AS_BASE64), None).unwrap();
        let broken = Message::builder().body("base64,***").message_attributes(ENCODED, marked).build();
        assert_eq!(&received(&Arc::from("orders"), broken).body[..], b"base64,***");
    }

    #[test]
    fn facts_come_from_the_system_attributes() {
        let message = Message::builder()
            .body("x")
            .attributes(System::ApproximateReceiveCount, "3")
            .attributes(System::SentTimestamp, "1700000000123")
            .attributes(System::MessageGroupId, "account 7")
            .message_attributes("messagegroupid", attribute("String", Some("of another message"), None).unwrap())
            .build();
        let received = received(&Arc::from("orders"), message);
        assert_eq!((received.delivery_count, received.redelivered), (3, true));
        assert_eq!(received.sent_at, SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(1_700_000_000_123)));
        assert_eq!(received.headers.get("messagegroupid"), Some("account 7"));
    }

    #[test]
    fn message_that_cannot_be_sent_is_an_error_that_names_the_cause() {
        let twice = Headers::from([("a", "1"), ("a", "2")]);
        let long = (0..11).map(|number| (format!("n{number}"), "x")).collect::<Headers>();
        let wrong = [
            (Headers::from([("a b", "x")]), "`a b`"),
            (Headers::from([("AWS.trace", "x")]), "`AWS.trace`"),
            (Headers::from([("a..b", "x")]), "`a..b`"),
            (Headers::from([("empty", "")]), "`empty` is empty"),
            (twice, "`a` occurs twice"),
            (long, "11 attributes"),
        ];
        for (headers, text) in wrong {
            let refused = sent(b"x", &headers).unwrap_err().to_string();
            assert!(refused.contains(text), "`{text}` isn't in: {refused}");
        }
    }
}
