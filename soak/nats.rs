//! A NATS client of the soak's own, one request at a time: what it publishes, counts and consumes by hand must not depend
//! on the adapter that it checks.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::{Delivery, take_out};
use crate::ledger::{Message, SOURCES};

/// The durable of each stream: the service's name, as the adapter would name it.
const DURABLE: &str = "soak";
/// How long a killed consumer's messages stay away.
const LEASE: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(5);

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    /// What the subjects of replies begin with.
    inbox: String,
    requests: u64,
}

/// A message, or the server's word in its place.
struct Reply {
    /// Which request it answers.
    request: u64,
    /// Where to answer it.
    answer_to: Option<String>,
    /// The headers' first line, of which a status is no message.
    has_status: bool,
    body: Vec<u8>,
}

impl Client {
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Self> {
        let address = url.strip_prefix("nats://").context("a URL that begins with nats://")?;
        let stream = BufReader::new(timeout(ANSWER, TcpStream::connect(address)).await??);
        stream.get_ref().set_nodelay(true)?;
        let mut client = Self { stream, inbox: format!("soak.{:016x}", fastrand::u64(..)), requests: 0 };
        let inbox = &client.inbox;
        let hello = json!({ "verbose": false, "headers": true, "no_responders": true });
        let hello = format!("CONNECT {hello}\r\nSUB {inbox}.* 1\r\n");
        client.stream.write_all(hello.as_bytes()).await?;
        Ok(client)
    }

    /// Sends a request, and waits for the first reply. After an error the client is of no use any more.
    async fn request(&mut self, subject: &str, body: &[u8]) -> anyhow::Result<Reply> {
        let request = self.send_request(subject, body).await?;
        let reply = async {
            loop {
                let reply = self.reply().await?;
                if reply.request == request {
                    return Ok(reply);
                }
            }
        };
        timeout(ANSWER, reply).await.with_context(|| format!("{subject} isn't answered"))?
    }

    async fn send_request(&mut self, subject: &str, body: &[u8]) -> anyhow::Result<u64> {
        self.requests += 1;
        let inbox = format!("{}.{}", self.inbox, self.requests);
        self.send(subject, &inbox, body).await?;
        Ok(self.requests)
    }

    /// Acknowledges, and doesn't wait for the server's word.
    pub(crate) async fn acknowledge(&mut self, answer_to: &str) -> anyhow::Result<()> {
        self.send(answer_to, "", b"+ACK").await
    }

    async fn send(&mut self, subject: &str, answer_to: &str, body: &[u8]) -> anyhow::Result<()> {
        let mut frame = format!("PUB {subject} {answer_to} {}\r\n", body.len()).into_bytes();
        frame.extend([body, b"\r\n"].concat());
        Ok(self.stream.write_all(&frame).await?)
    }

    async fn reply(&mut self) -> anyhow::Result<Reply> {
        loop {
            let mut line = String::new();
            ensure!(self.stream.read_line(&mut line).await? > 0, "the connection is closed");
            let words = line.split_ascii_whitespace().collect::<Vec<_>>();
            let (subject, answer_to, head, all) = match *words.as_slice() {
                ["PING"] => {
                    self.stream.write_all(b"PONG\r\n").await?;
                    continue;
                }
                ["MSG", subject, _, all] => (subject, None, 0, all.parse()?),
                ["MSG", subject, _, answer_to, all] => (subject, Some(answer_to.to_owned()), 0, all.parse()?),
                ["HMSG", subject, _, head, all] => (subject, None, head.parse()?, all.parse()?),
                ["HMSG", subject, _, answer_to, head, all] => {
                    (subject, Some(answer_to.to_owned()), head.parse()?, all.parse()?)
                }
                ["-ERR", ..] => bail!("the server says {}", line.trim()),
                _ => continue,
            };
            let mut body: Vec<u8> = vec![0; all + 2];
            self.stream.read_exact(&mut body).await?;
            body.truncate(all);
            let has_status = body.strip_prefix(b"NATS/1.0 ").is_some();
            body.drain(..head);
            let request = match &answer_to {
                // What is pulled keeps the subject that it was published to; there is one pull at a time.
                Some(answer_to) if answer_to.starts_with("$JS.ACK.") => self.requests,
                _ => subject.rsplit_once('.').and_then(|(_, number)| number.parse().ok()).unwrap_or_default(),
            };
            return Ok(Reply { request, answer_to, has_status, body });
        }
    }

    /// Asks JetStream, and answers what it says unless that is an error.
    async fn ask(&mut self, what: &str, body: Value) -> anyhow::Result<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let reply = self.request(&format!("$JS.API.{what}"), body.as_bytes()).await?;
        ensure!(!reply.has_status, "nobody answers {what}");
        let answer: Value = serde_json::from_slice(&reply.body)?;
        ensure!(answer.get("error").is_none(), "{what}: {answer}");
        Ok(answer)
    }

    /// Publishes messages, and takes out those that are stored. What is left after an error may be stored or not.
    pub(crate) async fn publish(&mut self, left: &mut Vec<Message>) -> anyhow::Result<()> {
        let mut waiting = HashMap::new();
        for message in &*left {
            let request = self.send_request(message.source(), message.body()?.as_bytes()).await?;
            waiting.insert(request, message.clone());
        }
        while !waiting.is_empty() {
            let reply = timeout(ANSWER, self.reply()).await.context("a publication isn't answered")??;
            let answer: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
            ensure!(answer.get("seq").is_some(), "a publication is refused: {answer}");
            if let Some(stored) = waiting.remove(&reply.request) {
                take_out(left, &stored);
            }
        }
        Ok(())
    }

    /// The next message of a source, if there is one for the moment.
    pub(crate) async fn next(&mut self, source: &str) -> anyhow::Result<Option<Delivery>> {
        let pull = json!({ "batch": 1, "expires": nanos(Duration::from_secs(1)) });
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{source}.{DURABLE}");
        let reply = self.request(&subject, pull.to_string().as_bytes()).await?;
        let receipt = reply.answer_to.filter(|_| !reply.has_status);
        Ok(receipt.map(|receipt| Delivery { receipt, body: reply.body }))
    }
}

fn nanos(time: Duration) -> u64 {
    time.as_secs() * 1_000_000_000
}

/// Makes the streams and durables, for a lease that suits the soak.
pub(crate) async fn prepare(url: &str) -> anyhow::Result<()> {
    let mut client = Client::connect(url).await?;
    for source in SOURCES {
        let day = nanos(Duration::from_hours(24));
        let stream = json!({ "name": source, "subjects": [source], "storage": "file", "max_age": day });
        client.ask(&format!("STREAM.CREATE.{source}"), stream).await?;
        let durable = json!({
            "durable_name": DURABLE, "ack_policy": "explicit", "ack_wait": nanos(LEASE),
            "deliver_policy": "all", "max_deliver": -1, "max_ack_pending": 10_000
        });
        let request = json!({ "stream_name": source, "config": durable });
        client.ask(&format!("CONSUMER.DURABLE.CREATE.{source}.{DURABLE}"), request).await?;
    }
    Ok(())
}

/// How many messages aren't delivered, and how many aren't acknowledged.
pub(crate) async fn unsettled(url: &str) -> anyhow::Result<(u64, u64)> {
    let mut client = Client::connect(url).await?;
    let mut unsettled = (0, 0);
    for source in SOURCES {
        let info = client.ask(&format!("CONSUMER.INFO.{source}.{DURABLE}"), Value::Null).await?;
        let count = |name: &str| info[name].as_u64().with_context(|| format!("no {name} in {info}"));
        unsettled.0 += count("num_pending")?;
        unsettled.1 += count("num_ack_pending")?;
    }
    Ok(unsettled)
}
