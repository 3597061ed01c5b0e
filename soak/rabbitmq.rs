//! A RabbitMQ client of the soak's own, on one channel: what it publishes, counts and consumes by hand must not depend on the
//! adapter that it checks.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::client::{Delivery, take_out};
use crate::ledger::{Message, SOURCES};

const ANSWER: Duration = Duration::from_secs(10);
/// How soon an empty queue is asked again, and how often.
const AGAIN: Duration = Duration::from_millis(100);
const TRIES: usize = 10;

/// A method of the protocol: its class and its number.
type Method = (u16, u16);

const START: Method = (10, 10);
const START_OK: Method = (10, 11);
const TUNE: Method = (10, 30);
const TUNE_OK: Method = (10, 31);
const OPEN: Method = (10, 40);
const OPEN_OK: Method = (10, 41);
const CONNECTION_CLOSE: Method = (10, 50);
const CHANNEL_OPEN: Method = (20, 10);
const CHANNEL_OPEN_OK: Method = (20, 11);
const CHANNEL_CLOSE: Method = (20, 40);
const DECLARE: Method = (50, 10);
const DECLARE_OK: Method = (50, 11);
const PUBLISH: Method = (60, 40);
const RETURN: Method = (60, 50);
const GET: Method = (60, 70);
const GET_OK: Method = (60, 71);
const GET_EMPTY: Method = (60, 72);
const ACK: Method = (60, 80);
const CONFIRM: Method = (85, 10);
const CONFIRM_OK: Method = (85, 11);

const METHOD: u8 = 1;
const HEADER: u8 = 2;
const BODY: u8 = 3;
const FRAME_END: u8 = 0xce;

/// Bits of a declaration and of a publication.
const PASSIVE: u8 = 1;
const DURABLE: u8 = 2;
const MANDATORY: u8 = 1;

pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    published: u64,
}

impl Client {
    pub(crate) async fn connect(url: &str) -> anyhow::Result<Self> {
        let (_, address) = url.rsplit_once('@').context("a URL with a user")?;
        let stream = BufReader::new(timeout(ANSWER, TcpStream::connect(address)).await??);
        stream.get_ref().set_nodelay(true)?;
        let mut client = Self { stream, published: 0 };
        timeout(ANSWER, client.open()).await.context("the server doesn't let us in")??;
        Ok(client)
    }

    async fn open(&mut self) -> anyhow::Result<()> {
        self.stream.write_all(b"AMQP\0\0\x09\x01").await?;
        self.expect(START).await?;
        let login = b"\0guest\0guest";
        let start = [&table(&[])[..], &short("PLAIN"), &length(login.len()), login, &short("en_US")].concat();
        self.send(0, START_OK, &start).await?;
        let mut tune = self.expect(TUNE).await?;
        // Without heartbeats.
        tune.splice(6.., [0, 0]);
        self.send(0, TUNE_OK, &tune).await?;
        self.send(0, OPEN, &[&short("/")[..], &short(""), &[0]].concat()).await?;
        self.expect(OPEN_OK).await?;
        self.call(CHANNEL_OPEN, &short(""), CHANNEL_OPEN_OK).await?;
        self.call(CONFIRM, &[0], CONFIRM_OK).await.map(drop)
    }

    /// Publishes messages, and takes out those that are stored. What is left after an error may be stored or not.
    pub(crate) async fn publish(&mut self, left: &mut Vec<Message>) -> anyhow::Result<()> {
        let mut waiting = BTreeMap::new();
        for message in &*left {
            let to = [&[0; 2][..], &short(""), &short(message.source()), &[MANDATORY]].concat();
            self.send(1, PUBLISH, &to).await?;
            let body = message.body()?.into_bytes();
            // Of the class of messages, with one property: persistent.
            let header = [&[0, 60, 0, 0][..], &(body.len() as u64).to_be_bytes(), &[0x10, 0, 2]].concat();
            self.frame(HEADER, 1, &header).await?;
            self.frame(BODY, 1, &body).await?;
            self.published += 1;
            waiting.insert(self.published, message.clone());
        }
        while !waiting.is_empty() {
            let (method, arguments) =
                timeout(ANSWER, self.method()).await.context("a publication isn't answered")??;
            ensure!(method == ACK, "a publication is refused: {method:?} {}", String::from_utf8_lossy(&arguments));
            let (tag, multiple) = (u64_at(&arguments, 0)?, arguments.get(8) == Some(&1));
            let stored = waiting.extract_if(.., |number, _| *number == tag || multiple && *number < tag);
            for (_, stored) in stored {
                take_out(left, &stored);
            }
        }
        Ok(())
    }

    /// The next message of a source, if there is one for the moment.
    pub(crate) async fn next(&mut self, source: &str) -> anyhow::Result<Option<Delivery>> {
        let get = [&[0; 2][..], &short(source), &[0]].concat();
        for _ in 0..TRIES {
            self.send(1, GET, &get).await?;
            let (method, arguments) = timeout(ANSWER, self.method()).await.context("a get isn't answered")??;
            if method == GET_OK {
                let receipt = u64_at(&arguments, 0)?.to_string();
                let body = timeout(ANSWER, self.body()).await.context("a message isn't whole")??;
                return Ok(Some(Delivery { receipt, body }));
            }
            ensure!(method == GET_EMPTY, "a get is answered by {method:?}");
            sleep(AGAIN).await;
        }
        Ok(None)
    }

    /// Acknowledges, and doesn't wait for the server's word: there is none.
    pub(crate) async fn acknowledge(&mut self, receipt: &str) -> anyhow::Result<()> {
        let tag = receipt.parse::<u64>()?;
        self.send(1, ACK, &[&tag.to_be_bytes()[..], &[0]].concat()).await
    }

    /// Declares a quorum queue, or looks at one that must be there; answers with how many of its messages nobody has.
    async fn declare(&mut self, queue: &str, bits: u8) -> anyhow::Result<u64> {
        let arguments = [&[0; 2][..], &short(queue), &[bits], &table(&[("x-queue-type", "quorum")])].concat();
        let answer = self.call(DECLARE, &arguments, DECLARE_OK).await.with_context(|| queue.to_owned())?;
        let count = answer.get(1 + queue.len()..5 + queue.len()).context("a short answer")?;
        Ok(u64::from(u32::from_be_bytes(count.try_into()?)))
    }

    async fn call(&mut self, method: Method, arguments: &[u8], answer: Method) -> anyhow::Result<Vec<u8>> {
        self.send(1, method, arguments).await?;
        timeout(ANSWER, self.expect(answer)).await.with_context(|| format!("{method:?} isn't answered"))?
    }

    async fn expect(&mut self, expected: Method) -> anyhow::Result<Vec<u8>> {
        let (method, arguments) = self.method().await?;
        ensure!(method == expected, "{expected:?} was expected, and {method:?} came");
        Ok(arguments)
    }

    /// The server's next method. One that ends the channel, or says that a message went nowhere, is an error.
    async fn method(&mut self) -> anyhow::Result<(Method, Vec<u8>)> {
        let mut method = self.payload(METHOD).await?;
        let Some([a, b, c, d]) = method.first_chunk::<4>() else { bail!("a method without a number") };
        let number = (u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d]));
        method.drain(..4);
        match number {
            CONNECTION_CLOSE | CHANNEL_CLOSE | RETURN => bail!("the server says {}", String::from_utf8_lossy(&method)),
            _ => Ok((number, method)),
        }
    }

    /// The body of a message that was announced.
    async fn body(&mut self) -> anyhow::Result<Vec<u8>> {
        let size = u64_at(&self.payload(HEADER).await?, 4)?;
        let mut body = Vec::new();
        while (body.len() as u64) < size {
            body.extend(self.payload(BODY).await?);
        }
        Ok(body)
    }

    /// The next frame, which is of this kind.
    async fn payload(&mut self, kind: u8) -> anyhow::Result<Vec<u8>> {
        let mut head = [0; 7];
        self.stream.read_exact(&mut head).await.context("the connection is closed")?;
        let [got, _, _, size @ ..] = head;
        ensure!(got == kind, "a frame of the kind {got}");
        let mut payload = vec![0; usize::try_from(u32::from_be_bytes(size))? + 1];
        self.stream.read_exact(&mut payload).await?;
        ensure!(payload.pop() == Some(FRAME_END), "a frame without its end");
        Ok(payload)
    }

    async fn send(&mut self, channel: u8, (class, number): Method, arguments: &[u8]) -> anyhow::Result<()> {
        let method = [&class.to_be_bytes()[..], &number.to_be_bytes(), arguments].concat();
        self.frame(METHOD, channel, &method).await
    }

    async fn frame(&mut self, kind: u8, channel: u8, payload: &[u8]) -> anyhow::Result<()> {
        let frame = [&[kind, 0, channel][..], &length(payload.len()), payload, &[FRAME_END]].concat();
        Ok(self.stream.write_all(&frame).await?)
    }
}

/// All lengths here are short: names, and messages of a line.
fn length(of: usize) -> [u8; 4] {
    u32::try_from(of).unwrap_or(u32::MAX).to_be_bytes()
}

fn short(text: &str) -> Vec<u8> {
    let mut bytes = vec![u8::try_from(text.len()).unwrap_or(u8::MAX)];
    bytes.extend(text.as_bytes());
    bytes
}

fn table(fields: &[(&str, &str)]) -> Vec<u8> {
    let fields =
        fields.iter().map(|(name, value)| [&short(name)[..], b"S", &length(value.len()), value.as_bytes()].concat());
    let fields = fields.collect::<Vec<_>>().concat();
    [&length(fields.len())[..], &fields].concat()
}

fn u64_at(bytes: &[u8], place: usize) -> anyhow::Result<u64> {
    let number = bytes.get(place..place + 8).context("a short answer")?;
    Ok(u64::from_be_bytes(number.try_into()?))
}

/// Makes the queues.
pub(crate) async fn prepare(url: &str) -> anyhow::Result<()> {
    let mut client = Client::connect(url).await?;
    for source in SOURCES {
        client.declare(source, DURABLE).await?;
    }
    Ok(())
}

/// How many messages aren't delivered, those that wait in other queues for another try included, and how many aren't
/// acknowledged.
pub(crate) async fn unsettled(url: &str) -> anyhow::Result<(u64, u64)> {
    let mut client = Client::connect(url).await?;
    let mut undelivered = 0;
    for queue in ask_node(url, &["list_queues", "name"]).await?.lines() {
        // The node's own list of counts is seconds old.
        undelivered += client.declare(queue, PASSIVE).await?;
    }
    let mut unacknowledged = 0;
    if undelivered == 0 {
        for channel in ask_node(url, &["list_channels", "messages_unacknowledged"]).await?.lines() {
            unacknowledged += channel.parse::<u64>()?;
        }
    }
    Ok((undelivered, unacknowledged))
}

/// What AMQP doesn't tell; `scripts/services.d/rabbitmq` has where the node is found, and by which cookie.
async fn ask_node(url: &str, what: &[&str]) -> anyhow::Result<String> {
    let (_, port) = url.rsplit_once(':').context("a URL with a port")?;
    let mapper = port.parse::<u16>()? + 4_000;
    let mut ask = Command::new("/usr/lib/rabbitmq/bin/rabbitmqctl");
    ask.args(["-n", "rabbit@localhost", "--erlang-cookie", "inboxed", "--silent"]).args(what);
    ask.env("ERL_EPMD_PORT", mapper.to_string()).env("HOME", std::env::temp_dir()).env("LC_ALL", "C.UTF-8");
    let output = ask.stdin(Stdio::null()).output().await.context("rabbitmqctl")?;
    ensure!(output.status.success(), "rabbitmqctl {what:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
