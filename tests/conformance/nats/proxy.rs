//! A proxy before the server, for what happens to connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What has become of the connections that there were at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Flows,
    /// Open, and nothing comes through.
    Silent,
    Cut,
}

pub(crate) struct Proxy {
    port: u16,
    /// Connections go by the value that was set before they began, until it is set anew.
    fate: watch::Sender<Fate>,
    /// How many acknowledgements are still to be lost.
    lose: Arc<AtomicUsize>,
    /// How many were let through.
    passed: Arc<AtomicUsize>,
}

impl Proxy {
    pub(crate) async fn to(url: &str) -> Self {
        let server = url.trim_start_matches("nats://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let fate = watch::Sender::new(Fate::Flows);
        let (lose, passed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (fates, losing, passing) = (fate.clone(), Arc::clone(&lose), Arc::clone(&passed));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&server).await else { continue };
                let (fate, losing, passing) = (fates.subscribe(), Arc::clone(&losing), Arc::clone(&passing));
                tokio::spawn(carry(client, server, fate, losing, passing));
            }
        });
        Self { port, fate, lose, passed }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Cuts the connections that there are.
    pub(crate) fn cut(&self) {
        self.fate.send_replace(Fate::Cut);
        self.fate.send_replace(Fate::Flows);
    }

    /// Lets nothing through on the connections that there are.
    pub(crate) fn silence(&self) {
        self.fate.send_replace(Fate::Silent);
    }

    /// Loses this many acknowledgements on their way to the server.
    pub(crate) fn lose_acknowledgements(&self, count: usize) {
        self.lose.store(count, Ordering::Release);
    }

    /// How many acknowledgements came to the server.
    pub(crate) fn acknowledgements(&self) -> usize {
        self.passed.load(Ordering::Acquire)
    }
}

async fn carry(
    client: TcpStream,
    server: TcpStream,
    mut fate: watch::Receiver<Fate>,
    lose: Arc<AtomicUsize>,
    passed: Arc<AtomicUsize>,
) {
    fate.mark_unchanged();
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let carried = async {
        tokio::select! {
            _ = filter(&mut from_client, &mut to_server, &lose, &passed) => {}
            _ = tokio::io::copy(&mut from_server, &mut to_client) => {}
        }
    };
    tokio::select! {
        () = carried => {}
        _ = fate.changed() => {}
    }
    if *fate.borrow() == Fate::Silent {
        tokio::time::sleep(Duration::from_mins(5)).await;
    }
}

/// Carries what a client says, frame by frame.
async fn filter(
    from: &mut OwnedReadHalf,
    to: &mut OwnedWriteHalf,
    lose: &AtomicUsize,
    passed: &AtomicUsize,
) -> std::io::Result<()> {
    let mut from = BufReader::new(from);
    loop {
        let mut frame = Vec::new();
        if from.read_until(b'\n', &mut frame).await? == 0 {
            return Ok(());
        }
        let line = String::from_utf8_lossy(&frame).into_owned();
        if line.starts_with("PUB ") || line.starts_with("HPUB ") {
            let length = line.split_whitespace().last().unwrap().parse::<usize>().unwrap();
            let mut body = vec![0; length + 2];
            from.read_exact(&mut body).await?;
            if body.starts_with(b"+ACK") {
                if lose.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok() {
                    continue;
                }
                passed.fetch_add(1, Ordering::AcqRel);
            }
            frame.extend(body);
        }
        to.write_all(&frame).await?;
    }
}
