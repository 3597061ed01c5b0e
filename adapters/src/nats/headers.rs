//! Headers, between async-nats, which holds them as text, and the runtime, which holds them as bytes.

use std::str::FromStr as _;

use async_nats::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;
use inboxed_runtime::Headers;

use super::error::NatsError;

/// The headers of a message that async-nats has read.
pub(super) fn received(headers: Option<&HeaderMap>) -> Headers {
    // The client keeps them in a map, and so in another order each time: a message's copies are to be the same.
    let mut received = headers.into_iter().flat_map(HeaderMap::iter).collect::<Vec<_>>();
    received.sort_unstable_by(|left, right| AsRef::<str>::as_ref(left.0).cmp(right.0.as_ref()));
    let lines = received.into_iter().flat_map(|(name, values)| values.iter().map(move |value| (name, value)));
    lines.map(|(name, value)| (name.to_string(), value.as_str().to_owned())).collect()
}

/// The headers of a block as it stands in the stream: `NATS/1.0`, then a line for each. Values are bytes.
pub(super) fn raw(block: &[u8]) -> Headers {
    let mut headers = Headers::default();
    for line in block.split(|byte| *byte == b'\n').skip(1).map(<[u8]>::trim_ascii) {
        if let Some(colon) = line.iter().position(|byte| *byte == b':') {
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            headers.push(String::from_utf8_lossy(name.trim_ascii()), Bytes::copy_from_slice(value));
        }
    }
    headers
}

/// The headers of a message to publish.
pub(super) fn sent(headers: &Headers) -> Result<HeaderMap, NatsError> {
    let mut sent = HeaderMap::new();
    for (name, value) in headers.iter() {
        let unfit = |why: &str| NatsError::Message(format!("its header `{name}` {why}"));
        let header = HeaderName::from_str(name);
        let header = header.map_err(|_| unfit("has a name with a space, a colon or a character that isn't ASCII"))?;
        let value = std::str::from_utf8(value).map_err(|_| unfit("isn't UTF-8: encode it"))?;
        sent.append(header, HeaderValue::from_str(value).map_err(|_| unfit("has a line break: encode it"))?);
    }
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_a_raw_block_arrive_byte_for_byte() {
        let headers = raw(b"NATS/1.0\r\nType: Applied\r\ntype:\xff\r\nempty:\r\nno header\r\na: b:c\r\n\r\n");
        let expected = [("Type", &b"Applied"[..]), ("type", b"\xff"), ("empty", b""), ("a", b"b:c")];
        assert!(headers.iter().eq(expected), "{headers:?}");
    }

    #[test]
    fn header_that_cannot_be_sent_is_an_error_that_names_it() {
        for (name, value) in [("a b", "x"), ("a:b", "x"), ("\u{e4}", "x"), ("a", "x\r\ny: z")] {
            let refused = sent(&Headers::from([(name, value)])).unwrap_err().to_string();
            assert!(refused.contains(&format!("`{name}`")), "{refused}");
        }
        let bytes = [("a", Bytes::from_static(b"\xff"))].into_iter().collect::<Headers>();
        assert!(sent(&bytes).unwrap_err().to_string().contains("UTF-8"));
        let sent = sent(&Headers::from([("a", "1"), ("a", "2")])).unwrap();
        assert!(sent.get_all("a").map(HeaderValue::as_str).eq(["1", "2"]));
    }
}
