//! A sender of webhooks, byte by byte.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// What a sender was told.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) text: String,
    head: String,
}

impl Answer {
    fn parse(bytes: &[u8]) -> io::Result<Self> {
        let whole = String::from_utf8_lossy(bytes);
        let (head, text) = whole.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok(Self { status: status.ok_or(io::ErrorKind::InvalidData)?, text: text.to_owned(), head: head.to_owned() })
    }

    /// A header's value.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let named = |line: &&str| line.split_once(':').is_some_and(|(known, _)| known.eq_ignore_ascii_case(name));
        self.head.lines().find(named).and_then(|line| Some(line.split_once(':')?.1.trim()))
    }

    /// In how many seconds to try again.
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.header("retry-after")?.parse().ok()
    }
}

/// A request by POST, all but its body: further headers are whole lines.
pub(crate) fn head(headers: &[&str]) -> String {
    let always = ["POST /hook HTTP/1.1", "Host: localhost", "Connection: close"];
    [&always, headers, &["", ""]].concat().join("\r\n")
}

/// Connects, and sends this much of a request.
pub(crate) async fn begin(address: SocketAddr, bytes: &[u8]) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(bytes).await?;
    Ok(stream)
}

/// Waits for the answer.
pub(crate) async fn answer(mut stream: TcpStream) -> io::Result<Answer> {
    let mut bytes = Vec::new();
    // An answer to a request that wasn't read to its end may be followed by a reset.
    match stream.read_to_end(&mut bytes).await {
        Err(error) if bytes.is_empty() => Err(error),
        _ => Answer::parse(&bytes),
    }
}

/// Sends a message with these headers, and waits for the answer.
pub(crate) async fn post_with(address: SocketAddr, headers: &[&str], body: impl AsRef<[u8]>) -> io::Result<Answer> {
    let body = body.as_ref();
    let length = format!("Content-Length: {}", body.len());
    let request = [head(&[headers, &[&length]].concat()).as_bytes(), body].concat();
    answer(begin(address, &request).await?).await
}

/// Sends a message, and waits for the answer.
pub(crate) async fn post(address: SocketAddr, body: impl AsRef<[u8]>) -> Answer {
    crate::common::within(post_with(address, &[], body)).await.unwrap()
}
