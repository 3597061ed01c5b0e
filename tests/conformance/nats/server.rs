//! What a test asks of a NATS server by its own words: none of it goes through the product.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// A server, by its URL.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) url: String,
}

impl Server {
    /// JetStream's answer to a request, `STREAM.INFO.orders` for one.
    pub(crate) fn ask(&self, request: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        serde_json::from_slice(&self.request(&format!("$JS.API.{request}"), b"", body.as_bytes())).unwrap()
    }

    /// Publishes a message with this block of headers, which may be what no client would send, and waits until it is stored.
    pub(crate) async fn publish(&self, subject: &str, headers: Vec<u8>, body: Vec<u8>) {
        let (server, subject) = (self.clone(), subject.to_owned());
        let stored = tokio::task::spawn_blocking(move || server.request(&subject, &headers, &body)).await.unwrap();
        let stored: Value = serde_json::from_slice(&stored).unwrap();
        assert!(stored["seq"].is_u64(), "{stored}");
    }

    /// The same from async code.
    pub(crate) async fn ask_soon(&self, request: impl Into<String>, body: Value) -> Value {
        let (server, request) = (self.clone(), request.into());
        tokio::task::spawn_blocking(move || server.ask(&request, &body)).await.unwrap()
    }

    /// How many connections the server has had so far, this one included.
    pub(crate) async fn connections(&self) -> u64 {
        let address = self.url.trim_start_matches("nats://").to_owned();
        let greeting = tokio::task::spawn_blocking(move || {
            let mut line = String::new();
            BufReader::new(TcpStream::connect(address).unwrap()).read_line(&mut line).unwrap();
            line
        });
        let greeting = greeting.await.unwrap();
        let info: Value = serde_json::from_str(greeting.strip_prefix("INFO ").unwrap()).unwrap();
        info["client_id"].as_u64().unwrap()
    }

    /// The reply to a request, over a connection of its own.
    fn request(&self, subject: &str, headers: &[u8], body: &[u8]) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.url.trim_start_matches("nats://")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let back = format!("_INBOX.{:016x}", fastrand::u64(..));
        let first = format!("CONNECT {{\"verbose\":false,\"headers\":true}}\r\nSUB {back} 1\r\n");
        let (length, total) = (headers.len(), headers.len() + body.len());
        let publish = match length {
            0 => format!("PUB {subject} {back} {total}\r\n"),
            _ => format!("HPUB {subject} {back} {length} {total}\r\n"),
        };
        stream.write_all(&[first.as_bytes(), publish.as_bytes(), headers, body, b"\r\nPING\r\n"].concat()).unwrap();
        loop {
            let mut line = String::new();
            assert_ne!(reader.read_line(&mut line).unwrap(), 0, "the server has closed the connection");
            if let Some(message) = line.strip_prefix("MSG ") {
                let length = message.split_whitespace().last().unwrap().parse().unwrap();
                let mut body = vec![0; length];
                reader.read_exact(&mut body).unwrap();
                return body;
            }
        }
    }
}
