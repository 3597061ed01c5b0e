//! An SQS client of the soak's own, over plain HTTP, one request at a time: what it publishes, counts and consumes by hand must
//! not depend on the adapter that it checks.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::{Delivery, take_out};
use crate::ledger::{Message, SOURCES};

/// How long a killed consumer's messages stay away.
const LEASE: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(10);
/// The service takes no more in one request.
const BATCH: usize = 10;
/// The emulator looks at the region and at nothing else.
const SIGNED: &str = "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/sqs/aws4_request";

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    address: String,
    /// The queues of `SOURCES`, by their URLs.
    queues: Vec<String>,
}

impl Client {
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Self> {
        let mut client = Self::open(url).await?;
        for source in SOURCES {
            let found = client.ask("GetQueueUrl", &json!({ "QueueName": source })).await?;
            client.queues.push(found["QueueUrl"].as_str().context("a queue without a URL")?.to_owned());
        }
        Ok(client)
    }

    async fn open(url: &str) -> anyhow::Result<Self> {
        let (_, address) = url.rsplit_once('@').context("a URL with a user")?;
        let address = address.split('?').next().unwrap_or_default().to_owned();
        let stream = BufReader::new(timeout(ANSWER, TcpStream::connect(&address)).await??);
        stream.get_ref().set_nodelay(true)?;
        Ok(Self { stream, address, queues: Vec::new() })
    }

    fn queue(&self, source: &str) -> &str {
        let place = SOURCES.iter().position(|known| *known == source);
        place.and_then(|place| self.queues.get(place)).map_or("", String::as_str)
    }

    /// Publishes messages, and takes out those that are stored. What is left after an error may be stored or not.
    pub(crate) async fn publish(&mut self, left: &mut Vec<Message>) -> anyhow::Result<()> {
        while let Some(source) = left.first().map(Message::source) {
            let batch =
                left.iter().filter(|message| message.source() == source).take(BATCH).cloned().collect::<Vec<_>>();
            let entry = |(number, message): (usize, &Message)| {
                Ok(json!({ "Id": number.to_string(), "MessageBody": message.body()? }))
            };
            let entries = batch.iter().enumerate().map(entry).collect::<anyhow::Result<Vec<_>>>()?;
            let request = json!({ "QueueUrl": self.queue(source), "Entries": entries });
            let answer = self.ask("SendMessageBatch", &request).await?;
            let stored = answer["Successful"].as_array().into_iter().flatten();
            let stored = stored.filter_map(|entry| batch.get(entry["Id"].as_str()?.parse::<usize>().ok()?));
            let count = stored.inspect(|stored| take_out(left, stored)).count();
            ensure!(count == batch.len(), "a publication is refused: {answer}");
        }
        Ok(())
    }

    /// The next message of a source, if there is one for the moment.
    pub(crate) async fn next(&mut self, source: &str) -> anyhow::Result<Option<Delivery>> {
        let request = json!({ "QueueUrl": self.queue(source), "MaxNumberOfMessages": 1, "WaitTimeSeconds": 1 });
        let answer = self.ask("ReceiveMessage", &request).await?;
        let Some(message) = answer["Messages"].get(0) else { return Ok(None) };
        let text = |name: &str| Ok::<_, anyhow::Error>(message[name].as_str().context("half a message")?.to_owned());
        Ok(Some(Delivery { receipt: text("ReceiptHandle")?, body: text("Body")?.into_bytes() }))
    }

    pub(crate) async fn acknowledge(&mut self, source: &str, receipt: &str) -> anyhow::Result<()> {
        let request = json!({ "QueueUrl": self.queue(source), "ReceiptHandle": receipt });
        self.ask("DeleteMessage", &request).await.map(drop)
    }

    /// Sends a request, and answers what the service says unless that is an error. After one the client is of no use any more.
    async fn ask(&mut self, action: &str, request: &Value) -> anyhow::Result<Value> {
        let answer = timeout(ANSWER, self.exchange(action, &request.to_string())).await;
        let (status, body) = answer.with_context(|| format!("{action} isn't answered"))??;
        ensure!(status.contains(" 200 "), "{action}: {}", String::from_utf8_lossy(&body));
        Ok(if body.is_empty() { Value::Null } else { serde_json::from_slice(&body)? })
    }

    /// One request over HTTP: the answer's first line and its body.
    async fn exchange(&mut self, action: &str, body: &str) -> anyhow::Result<(String, Vec<u8>)> {
        let (address, length) = (&self.address, body.len());
        let request = format!(
            "POST / HTTP/1.1\r\nHost: {address}\r\nX-Amz-Target: AmazonSQS.{action}\r\nAuthorization: {SIGNED}\r\n\
             Content-Type: application/x-amz-json-1.0\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        self.stream.write_all(request.as_bytes()).await?;
        let (status, mut size) = (self.line().await?, 0);
        loop {
            let line = self.line().await?.to_ascii_lowercase();
            match line.trim_end().split_once(':') {
                Some(("content-length", value)) => size = value.trim().parse()?,
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; size];
        self.stream.read_exact(&mut body).await?;
        Ok((status, body))
    }

    async fn line(&mut self) -> anyhow::Result<String> {
        let mut line = String::new();
        ensure!(self.stream.read_line(&mut line).await? > 0, "the connection is closed");
        Ok(line)
    }
}

/// Makes the queues, for a lease that suits the soak.
pub(crate) async fn prepare(url: &str) -> anyhow::Result<()> {
    let mut client = Client::open(url).await?;
    for source in SOURCES {
        let attributes = json!({ "VisibilityTimeout": LEASE.as_secs().to_string() });
        client.ask("CreateQueue", &json!({ "QueueName": source, "Attributes": attributes })).await?;
    }
    Ok(())
}

/// How many messages aren't delivered, and how many aren't acknowledged.
pub(crate) async fn unsettled(url: &str) -> anyhow::Result<(u64, u64)> {
    const UNDELIVERED: [&str; 2] = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed"];
    const UNACKNOWLEDGED: &str = "ApproximateNumberOfMessagesNotVisible";
    let mut client = Client::connect(url).await?;
    let mut unsettled = (0, 0);
    for queue in client.queues.clone() {
        let answer = client.ask("GetQueueAttributes", &json!({ "QueueUrl": queue, "AttributeNames": ["All"] })).await?;
        let count = |name: &str| {
            let count = answer["Attributes"][name].as_str().and_then(|count| count.parse::<u64>().ok());
            count.with_context(|| format!("no {name} in {answer}"))
        };
        for name in UNDELIVERED {
            unsettled.0 += count(name)?;
        }
        unsettled.1 += count(UNACKNOWLEDGED)?;
    }
    Ok(unsettled)
}
