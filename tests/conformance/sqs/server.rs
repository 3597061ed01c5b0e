//! What a test asks of an SQS server by its own words: none of it goes through the product.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

/// A server, by its address.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    /// `127.0.0.1:4566`.
    pub(crate) address: String,
}

impl Server {
    /// The server of a URL, `sqs://KEY:SECRET@HOST:PORT?region=REGION`.
    pub(crate) fn of(url: &str) -> Self {
        let host = url.rsplit_once('@').expect("a URL with a key").1;
        Self { address: host.split('?').next().unwrap().to_owned() }
    }

    /// The answer to a request, `CreateQueue` for one; of a refusal its code, under `__type`.
    pub(crate) fn ask(&self, action: &str, body: &Value) -> Value {
        serde_json::from_slice(&self.request(action, body.to_string().as_bytes()).body).unwrap()
    }

    /// The same from async code.
    pub(crate) async fn ask_soon(&self, action: &'static str, body: Value) -> Value {
        let server = self.clone();
        tokio::task::spawn_blocking(move || server.ask(action, &body)).await.unwrap()
    }

    /// A queue's attributes; `null` if there is none.
    pub(crate) async fn attributes(&self, name: &str) -> Value {
        let asked = json!({ "QueueUrl": url_of(name), "AttributeNames": ["All"] });
        self.ask_soon("GetQueueAttributes", asked).await["Attributes"].take()
    }

    /// How many messages a queue has, in flight and delayed ones included.
    pub(crate) async fn messages(&self, name: &str) -> usize {
        let attributes = self.attributes(name).await;
        let counts =
            ["", "NotVisible", "Delayed"].map(|kind| &attributes[format!("ApproximateNumberOfMessages{kind}")]);
        counts.iter().map(|count| count.as_str().map_or(0, |count| count.parse::<usize>().unwrap())).sum()
    }

    /// Moves what is in one queue to another, as a redrive of the service does: as new messages.
    pub(crate) async fn move_messages(&self, from: &str, to: &str) -> usize {
        let mut moved = 0;
        loop {
            let asked =
                json!({ "QueueUrl": url_of(from), "MaxNumberOfMessages": 10, "MessageAttributeNames": ["All"] });
            let received = self.ask_soon("ReceiveMessage", asked).await;
            let Some(messages) = received["Messages"].as_array() else { return moved };
            for message in messages {
                let sent = json!({ "QueueUrl": url_of(to), "MessageBody": message["Body"] });
                assert!(self.ask_soon("SendMessage", sent).await["MessageId"].is_string());
                let deleted = json!({ "QueueUrl": url_of(from), "ReceiptHandle": message["ReceiptHandle"] });
                self.ask_soon("DeleteMessage", deleted).await;
                moved += 1;
            }
        }
    }

    /// One request over a connection of its own.
    pub(crate) fn request(&self, action: &str, body: &[u8]) -> Answer {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
        let head = format!(
            "POST / HTTP/1.0\r\nHost: {}\r\nX-Amz-Target: AmazonSQS.{action}\r\nContent-Type: application/x-amz-json-1.0\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/sqs/aws4_request\r\nContent-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        Answer::read(&answer)
    }
}

/// A queue's URL, as far as the server looks at it.
pub(crate) fn url_of(name: &str) -> String {
    format!("http://localhost/000000000000/{name}")
}

/// An answer as it came.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// The status line and the headers, without those that say how long the body is.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    fn read(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer with a head");
        let head = String::from_utf8_lossy(&bytes[..end]);
        let kept = |line: &&str| {
            !["content-length", "connection", "transfer-encoding"]
                .iter()
                .any(|name| line.to_ascii_lowercase().starts_with(name))
        };
        Self { head: head.lines().filter(kept).collect::<Vec<_>>().join("\r\n"), body: bytes[end + 4..].to_vec() }
    }

    /// The answer of this status and body.
    pub(crate) fn of(status: &str, body: &Value) -> Self {
        let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/x-amz-json-1.0");
        Self { head, body: body.to_string().into_bytes() }
    }
}
