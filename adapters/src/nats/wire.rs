//! NATS's own protocol, as far as a consumer needs it: what is read, and what is written.

use std::io::{Error, ErrorKind, Result};

use bytes::Bytes;
use inboxed_runtime::Headers;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};

/// The longest line that a server may send: its INFO names every server of a cluster.
const LONGEST_LINE: u64 = 1024 * 1024;

/// The largest message that a server can be set up to take.
const LARGEST_MESSAGE: usize = 64 * 1024 * 1024 + 64 * 1024;

/// What a server says.
#[derive(Debug)]
pub(super) enum Said {
    Info(String),
    Message(Message),
    Ping,
    Pong,
    Refusal(String),
}

/// A message that was delivered to a subscription.
#[derive(Clone, Debug, Default)]
pub(super) struct Message {
    pub(super) subscription: u64,
    pub(super) subject: String,
    pub(super) reply: Option<String>,
    pub(super) headers: Headers,
    /// Of what the server itself says to a request: its number and text.
    pub(super) status: Option<(u16, String)>,
    pub(super) body: Bytes,
}

/// Reads the next thing that the server says; `None` at the end of the connection.
pub(super) async fn read(stream: &mut (impl AsyncBufRead + Unpin)) -> Result<Option<Said>> {
    loop {
        let mut line = Vec::new();
        if (&mut *stream).take(LONGEST_LINE).read_until(b'\n', &mut line).await? == 0 {
            return Ok(None);
        }
        let line = String::from_utf8_lossy(&line);
        let line = line.trim_end();
        let (verb, rest) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        return Ok(Some(match verb.to_ascii_uppercase().as_str() {
            "MSG" => Said::Message(read_message(stream, rest, false).await?),
            "HMSG" => Said::Message(read_message(stream, rest, true).await?),
            "PING" => Said::Ping,
            "PONG" => Said::Pong,
            "INFO" => Said::Info(rest.trim().to_owned()),
            "-ERR" => Said::Refusal(rest.trim().trim_matches('\'').to_owned()),
            "+OK" | "" => continue,
            _ => return Err(unreadable(format!("`{verb}`"))),
        }));
    }
}

/// `SUBJECT SUBSCRIPTION [REPLY] [HEADER BYTES] TOTAL BYTES`, then the bytes themselves.
async fn read_message(stream: &mut (impl AsyncBufRead + Unpin), line: &str, with_headers: bool) -> Result<Message> {
    let parts = line.split_ascii_whitespace().collect::<Vec<_>>();
    let lengths = if with_headers { 2 } else { 1 };
    let (place, lengths) = parts.split_at(parts.len().saturating_sub(lengths));
    let number = |text: &str| text.parse::<usize>().map_err(|_| unreadable(format!("`MSG {line}`")));
    let (subject, subscription, reply) = match *place {
        [subject, subscription] => (subject, subscription, None),
        [subject, subscription, reply] => (subject, subscription, Some(reply.to_owned())),
        _ => return Err(unreadable(format!("`MSG {line}`"))),
    };
    let lengths = lengths.iter().map(|length| number(length)).collect::<Result<Vec<_>>>()?;
    let total = lengths.last().copied().unwrap_or_default();
    let header = if with_headers { lengths.first().copied().unwrap_or_default() } else { 0 };
    if header > total || total > LARGEST_MESSAGE {
        return Err(unreadable(format!("a message of {total} bytes")));
    }

    let mut bytes = vec![0; total + 2];
    stream.read_exact(&mut bytes).await?;
    bytes.truncate(total);
    let body = Bytes::from(bytes);
    let (headers, status) = read_headers(&body[..header]);
    let subscription = u64::try_from(number(subscription)?).unwrap_or_default();
    Ok(Message { subscription, subject: subject.to_owned(), reply, headers, status, body: body.slice(header..) })
}

/// `NATS/1.0 [STATUS [TEXT]]`, then a line for each header. The values are bytes: not every client sends UTF-8, and one
/// message must not end a connection.
fn read_headers(block: &[u8]) -> (Headers, Option<(u16, String)>) {
    let mut lines = block.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let first = String::from_utf8_lossy(lines.next().unwrap_or_default()).into_owned();
    let status = first.strip_prefix("NATS/1.0").map(str::trim).and_then(|status| {
        let (number, text) = status.split_once(' ').unwrap_or((status, ""));
        Some((number.parse().ok()?, text.trim().to_owned()))
    });
    let mut headers = Headers::default();
    for line in lines {
        if let Some(colon) = line.iter().position(|byte| *byte == b':') {
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            headers.push(String::from_utf8_lossy(name.trim_ascii()), Bytes::copy_from_slice(value));
        }
    }
    (headers, status)
}

/// The frame of a message to publish.
pub(super) fn publish(subject: &str, reply: &str, headers: &Headers, body: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers.iter() {
        if block.is_empty() {
            block.extend_from_slice(b"NATS/1.0\r\n");
        }
        block.extend_from_slice(&[name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    if block.is_empty() {
        return [format!("PUB {subject} {reply} {}\r\n", body.len()).as_bytes(), body, b"\r\n"].concat();
    }
    block.extend_from_slice(b"\r\n");
    let first = format!("HPUB {subject} {reply} {} {}\r\n", block.len(), block.len() + body.len());
    [first.as_bytes(), &block, body, b"\r\n"].concat()
}

fn unreadable(what: String) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(mut bytes: &[u8]) -> Vec<Said> {
        let mut all = Vec::new();
        while let Some(said) = read(&mut bytes).await.unwrap() {
            all.push(said);
        }
        all
    }

    #[tokio::test]
    async fn header_that_is_not_utf8_arrives_byte_for_byte() {
        let headers = [("Type", &b"Applied"[..]), ("type", b"\xff"), ("empty", b"")].into_iter();
        let headers = headers.map(|(name, value)| (name, Bytes::from_static(value))).collect::<Headers>();
        let sent = publish("orders", "back", &headers, b"\0\r\n\xff");
        let received =
            String::from_utf8_lossy(&sent[..sent.len() - 4]).replace("HPUB orders back", "HMSG orders 7 back");
        assert!(received.starts_with("HMSG orders 7 back "), "{received}");
        let line = sent.iter().position(|byte| *byte == b'\n').unwrap();
        let first = String::from_utf8_lossy(&sent[..=line]).replace("HPUB orders back", "HMSG orders 7 back");
        let said = read_all(&[first.as_bytes(), &sent[line + 1..]].concat()).await;
        let [Said::Message(message)] = &said[..] else { panic!("{said:?}") };
        assert_eq!((message.subscription, message.reply.as_deref()), (7, Some("back")));
        assert_eq!((&message.headers, &message.body[..]), (&headers, &b"\0\r\n\xff"[..]));
    }

    #[tokio::test]
    async fn status_is_told_from_a_message() {
        let said = read_all(b"HMSG in 2 28 28\r\nNATS/1.0 409 Consumer Del\r\n\r\n\r\nMSG a 1 0\r\n\r\nPING\r\n").await;
        let [Said::Message(status), Said::Message(empty), Said::Ping] = &said[..] else { panic!("{said:?}") };
        assert_eq!(status.status, Some((409, "Consumer Del".to_owned())));
        assert_eq!((empty.status.as_ref(), empty.body.len()), (None, 0));
    }

    #[tokio::test]
    async fn nonsense_is_an_error_and_no_panic() {
        for bytes in [
            &b"MSG\r\n"[..],
            b"MSG a b c d e f\r\n",
            b"HMSG a 1 9 3\r\nabc\r\n",
            b"MSG a 1 99999999999\r\n",
            b"\xff\xfe\r\n",
        ] {
            assert!(read(&mut &bytes[..]).await.is_err(), "{}", String::from_utf8_lossy(bytes));
        }
    }
}
