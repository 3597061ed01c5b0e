//! One connection to a server, from its greeting to its end. It never reconnects: what was begun on it ends with it, so that
//! no settlement reaches a later connection, where a stream may have been made anew and the number be another message's.
//!
//! That is why no client crate is used. async-nats 0.51 reconnects inside, and what was queued for the old connection goes out
//! on the new one; and it ends the connection at a header that isn't UTF-8, which then comes again for ever.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use inboxed_runtime::Headers;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, timeout};

use super::address::{Address, Credentials, Server};
use super::error::NatsError;
use super::login::{self, Info};
use super::wire::{self, Message, Said};

/// How long a server may take to let a client in.
const GREETING: Duration = Duration::from_secs(5);

/// How often a server is asked whether it is there. One that says nothing for twice as long isn't.
const PING_EVERY: Duration = Duration::from_secs(10);

/// The number of the subscription that replies come to.
const REPLIES: u64 = 1;

/// Whom to connect to, and as whom.
#[derive(Clone, Debug)]
pub(super) struct Login {
    pub(super) address: Address,
    pub(super) credentials: Credentials,
    pub(super) name: Arc<str>,
    #[cfg(feature = "nats-tls")]
    pub(super) roots: Option<std::path::PathBuf>,
}

/// A connection. Its clones are the same one; it is closed with the last.
#[derive(Clone, Debug)]
pub(super) struct Connection(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    shared: Arc<Shared>,
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
    /// What the subjects of replies begin with.
    inbox: String,
    next: AtomicU64,
}

/// What the two tasks of a connection share with its users.
#[derive(Debug)]
struct Shared {
    subscriptions: Mutex<HashMap<u64, mpsc::UnboundedSender<Delivered>>>,
    requests: Mutex<HashMap<String, oneshot::Sender<Message>>>,
    /// Whether anything came since the last look.
    heard: AtomicBool,
    refusal: Mutex<Option<String>>,
    /// Why it has ended.
    ended: watch::Sender<Option<String>>,
}

/// A message that came to a subscription, and when.
#[derive(Debug)]
pub(super) struct Delivered {
    pub(super) at: Instant,
    pub(super) message: Message,
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

type Reader = BufReader<ReadHalf<Box<dyn Stream>>>;
type Writer = WriteHalf<Box<dyn Stream>>;

impl Login {
    /// Connects to any of the servers.
    pub(super) async fn connect(&self) -> Result<Connection, NatsError> {
        let mut servers = self.address.servers.iter().collect::<Vec<_>>();
        fastrand::shuffle(&mut servers);
        let mut why = String::new();
        for server in servers {
            match timeout(GREETING, self.greet(server)).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(NatsError::Connect { why: reason, .. })) => why = reason,
                Ok(Err(error)) => return Err(error),
                Err(_) => why = format!("no greeting within {GREETING:?}"),
            }
        }
        Err(NatsError::Connect { at: self.address.to_string(), why })
    }

    async fn greet(&self, Server { host, port }: &Server) -> Result<Connection, NatsError> {
        let unreachable = |why: String| NatsError::Connect { at: format!("{host}:{port}"), why };
        let failed = |error: std::io::Error| unreachable(error.to_string());
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        // Without a buffer: what comes after the greeting may be TLS's.
        let mut stream: Box<dyn Stream> = Box::new(stream);
        let info = match wire::read(&mut BufReader::with_capacity(1, &mut stream)).await.map_err(failed)? {
            Some(Said::Info(info)) => Info::read(&info)?,
            Some(Said::Refusal(refusal)) => return Err(unreachable(refusal)),
            _ => return Err(unreachable("it doesn't greet as NATS does".to_owned())),
        };
        let tls = self.address.tls || info.tls_required;
        if tls {
            stream = self.encrypt(stream, host).await?;
        }
        let (reader, mut writer) = tokio::io::split(stream);
        let mut reader = BufReader::new(reader);
        let connect = login::connect(&info, &self.name, tls, &self.credentials).await?;
        writer.write_all(&connect).await.map_err(failed)?;
        writer.flush().await.map_err(failed)?;
        loop {
            match wire::read(&mut reader).await.map_err(failed)? {
                Some(Said::Pong) => return Ok(Connection::start(reader, writer)),
                Some(Said::Refusal(refusal)) if refusal.to_ascii_lowercase().contains("authorization") => {
                    return Err(NatsError::Denied(refusal));
                }
                Some(Said::Refusal(refusal)) => return Err(unreachable(refusal)),
                Some(_) => {}
                None => return Err(unreachable("it has closed the connection".to_owned())),
            }
        }
    }

    #[cfg(not(feature = "nats-tls"))]
    #[allow(clippy::unused_async, reason = "with the feature it waits")]
    async fn encrypt(&self, _: Box<dyn Stream>, _: &str) -> Result<Box<dyn Stream>, NatsError> {
        Err(NatsError::TlsFeature)
    }

    #[cfg(feature = "nats-tls")]
    async fn encrypt(&self, stream: Box<dyn Stream>, host: &str) -> Result<Box<dyn Stream>, NatsError> {
        let stream = super::tls::connect(stream, host, self.roots.as_deref()).await?;
        Ok(Box::new(stream))
    }
}

impl Connection {
    fn start(reader: Reader, writer: Writer) -> Self {
        let shared = Arc::new(Shared {
            subscriptions: Mutex::default(),
            requests: Mutex::default(),
            heard: AtomicBool::new(true),
            refusal: Mutex::default(),
            ended: watch::Sender::new(None),
        });
        let (outgoing, frames) = mpsc::unbounded_channel();
        tokio::spawn({
            let (shared, outgoing) = (Arc::clone(&shared), outgoing.downgrade());
            async move {
                let why = tokio::select! {
                    why = listen(reader, &shared, &outgoing) => why,
                    () = shared.ended() => return,
                };
                shared.end(why);
            }
        });
        tokio::spawn({
            let shared = Arc::clone(&shared);
            async move { shared.end(speak(writer, frames, &shared).await) }
        });
        let inbox = format!("_INBOX.{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        let connection = Self(Arc::new(Handle { shared, outgoing, inbox, next: AtomicU64::new(REPLIES + 1) }));
        connection.send(format!("SUB {}.* {REPLIES}\r\n", connection.0.inbox).into_bytes());
        connection
    }

    /// Why the connection has ended, or is taken for ended.
    pub(super) fn why(&self) -> NatsError {
        let ended = self.0.shared.ended.borrow().clone();
        NatsError::Ended(ended.unwrap_or_else(|| "it is closed".to_owned()))
    }

    /// Ends the connection: nothing that was begun on it reaches the server any more.
    pub(super) fn end(&self, why: &str) {
        self.0.shared.end(why.to_owned());
    }

    /// Sends a frame, in the order of the calls. After the end it goes nowhere.
    pub(super) fn send(&self, frame: Vec<u8>) {
        // An error says that the writing task is gone, which everybody is told by the connection's end.
        let _ = self.0.outgoing.send(frame);
    }

    /// Publishes without waiting for anything.
    pub(super) fn publish(&self, subject: &str, reply: &str, body: &[u8]) {
        self.send(wire::publish(subject, reply, &Headers::default(), body));
    }

    /// Asks, and waits for the reply as long as the caller does.
    pub(super) async fn request(&self, subject: &str, headers: &Headers, body: &[u8]) -> Result<Message, NatsError> {
        let shared = &self.0.shared;
        let reply = format!("{}.{}", self.0.inbox, self.0.next.fetch_add(1, Ordering::Relaxed));
        let (sender, receiver) = oneshot::channel();
        lock(&shared.requests).insert(reply.clone(), sender);
        let _forgotten_when_dropped = Waiting { shared, reply: &reply };
        if shared.ended.borrow().is_some() {
            return Err(self.why());
        }
        self.send(wire::publish(subject, &reply, headers, body));
        let message = receiver.await.map_err(|_| self.why())?;
        match message.status {
            Some((503, _)) => Err(NatsError::NoResponders(subject.to_owned())),
            _ => Ok(message),
        }
    }

    /// The same, for so long and no longer.
    pub(super) async fn ask(&self, subject: &str, body: &[u8], limit: Duration) -> Result<Message, NatsError> {
        let reply = timeout(limit, self.request(subject, &Headers::default(), body)).await;
        reply.unwrap_or_else(|_| {
            // A client without a right hears of it beside its request.
            let refusal = lock(&self.0.shared.refusal).take();
            Err(match refusal {
                Some(refusal) => NatsError::Denied(refusal),
                None => NatsError::silence(subject, limit),
            })
        })
    }

    /// A subscription to inboxes of its own: what their subjects begin with, and what comes.
    pub(super) fn subscribe(&self) -> Subscription {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        let inbox = format!("_INBOX.{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        let (sender, delivered) = mpsc::unbounded_channel();
        lock(&self.0.shared.subscriptions).insert(number, sender);
        if self.0.shared.ended.borrow().is_some() {
            lock(&self.0.shared.subscriptions).clear();
        }
        self.send(format!("SUB {inbox}.* {number}\r\n").into_bytes());
        Subscription { connection: self.clone(), number, inbox, delivered }
    }
}

/// A subscription. Dropped, it ends, and what is still on its way to it is given back to the server.
#[derive(Debug)]
pub(super) struct Subscription {
    connection: Connection,
    number: u64,
    pub(super) inbox: String,
    pub(super) delivered: mpsc::UnboundedReceiver<Delivered>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.connection.send(format!("UNSUB {}\r\n", self.number).into_bytes());
        lock(&self.connection.0.shared.subscriptions).remove(&self.number);
        self.delivered.close();
        while let Ok(Delivered { message, .. }) = self.delivered.try_recv() {
            give_back(&message, |frame| self.connection.send(frame));
        }
    }
}

/// Lets the server hand out a message again at once, if it is one of a stream.
pub(super) fn give_back(message: &Message, send: impl FnOnce(Vec<u8>)) {
    if let Some(reply) = message.reply.as_ref().filter(|reply| reply.starts_with("$JS.ACK.")) {
        send(wire::publish(reply, "", &Headers::default(), b"-NAK"));
    }
}

/// Somebody who waits for a reply.
struct Waiting<'a> {
    shared: &'a Shared,
    reply: &'a str,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        lock(&self.shared.requests).remove(self.reply);
    }
}

impl Shared {
    /// Waits for the end of the connection.
    async fn ended(&self) {
        // The sender is here, so that waiting can't fail.
        let _ = self.ended.subscribe().wait_for(Option::is_some).await;
    }

    fn end(&self, why: String) {
        self.ended.send_if_modified(|ended| {
            let first = ended.is_none();
            if first {
                *ended = Some(why);
            }
            first
        });
        // Whoever waits for these learns of the end.
        lock(&self.subscriptions).clear();
        lock(&self.requests).clear();
    }
}

/// Reads until the connection ends, and answers why it did.
async fn listen(mut reader: Reader, shared: &Shared, outgoing: &mpsc::WeakUnboundedSender<Vec<u8>>) -> String {
    let send = |frame: Vec<u8>| {
        if let Some(outgoing) = outgoing.upgrade() {
            let _ = outgoing.send(frame);
        }
    };
    loop {
        let said = match wire::read(&mut reader).await {
            Ok(Some(said)) => said,
            Ok(None) => {
                let refusal = lock(&shared.refusal).take();
                return refusal.unwrap_or_else(|| "the server has closed it".to_owned());
            }
            Err(error) => return error.to_string(),
        };
        shared.heard.store(true, Ordering::Relaxed);
        match said {
            Said::Ping => send(b"PONG\r\n".to_vec()),
            Said::Refusal(refusal) => {
                tracing::warn!(%refusal, "the NATS server complains");
                *lock(&shared.refusal) = Some(refusal);
            }
            Said::Message(message) if message.subscription == REPLIES => {
                let waiting = lock(&shared.requests).remove(&message.subject);
                if let Some(waiting) = waiting {
                    // An error says that the time was up, and nobody waits any more.
                    let _ = waiting.send(message);
                }
            }
            Said::Message(message) => {
                let subscription = lock(&shared.subscriptions).get(&message.subscription).cloned();
                let delivered = Delivered { at: Instant::now(), message };
                let left = match subscription {
                    Some(subscription) => subscription.send(delivered).err().map(|error| error.0),
                    None => Some(delivered),
                };
                if let Some(left) = left {
                    give_back(&left.message, send);
                }
            }
            Said::Pong | Said::Info(_) => {}
        }
    }
}

/// Writes what is to be sent until the connection ends, and answers why it did.
async fn speak(mut writer: Writer, mut frames: mpsc::UnboundedReceiver<Vec<u8>>, shared: &Shared) -> String {
    let mut ping = tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    ping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut silent = 0;
    let mut some = Vec::new();
    loop {
        tokio::select! {
            biased;
            () = shared.ended() => return String::new(),
            count = frames.recv_many(&mut some, 64) => if count == 0 {
                let _ = timeout(PING_EVERY, writer.shutdown()).await;
                return "it is closed".to_owned();
            },
            _ = ping.tick() => {
                silent = if shared.heard.swap(false, Ordering::Relaxed) { 0 } else { silent + 1 };
                if silent == 2 {
                    return format!("the server said nothing for {:?}", PING_EVERY * 2);
                }
                some.push(b"PING\r\n".to_vec());
            }
        }
        let written = async {
            writer.write_all(&some.concat()).await?;
            writer.flush().await
        };
        match timeout(PING_EVERY * 2, written).await {
            Ok(Ok(())) => some.clear(),
            Ok(Err(error)) => return error.to_string(),
            Err(_) => return format!("the server took nothing for {:?}", PING_EVERY * 2),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
