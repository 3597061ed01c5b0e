//! A proxy before the server, for what happens to connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
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
    url: String,
    fate: watch::Sender<Fate>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    /// How many acknowledgements are still to be lost.
    lose: AtomicUsize,
    /// How many were let through.
    passed: AtomicUsize,
}

impl Proxy {
    pub(crate) async fn to(url: &str) -> Self {
        let (user, server) = url.rsplit_once('@').unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{user}@127.0.0.1:{}", listener.local_addr().unwrap().port());
        let (fate, counts, server) = (watch::Sender::new(Fate::Flows), Arc::<Counts>::default(), server.to_owned());
        let (fates, counting) = (fate.clone(), Arc::clone(&counts));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&server).await else { continue };
                tokio::spawn(carry(client, server, fates.subscribe(), Arc::clone(&counting)));
            }
        });
        Self { url, fate, counts }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
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
        self.counts.lose.store(count, Ordering::Release);
    }

    /// How many acknowledgements came to the server.
    pub(crate) fn acknowledgements(&self) -> usize {
        self.counts.passed.load(Ordering::Acquire)
    }
}

async fn carry(client: TcpStream, server: TcpStream, mut fate: watch::Receiver<Fate>, counts: Arc<Counts>) {
    fate.mark_unchanged();
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let carried = async {
        tokio::select! {
            _ = filter(&mut from_client, &mut to_server, &counts) => {}
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

/// Carries what a client says, frame by frame: a type, a channel, a length, that many bytes, and an end.
async fn filter(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, counts: &Counts) -> std::io::Result<()> {
    const HEADER: usize = 8;
    const ACKNOWLEDGEMENT: [u8; 4] = [0, 60, 0, 80];
    let mut from = BufReader::new(from);
    let mut greeting = [0; HEADER];
    from.read_exact(&mut greeting).await?;
    to.write_all(&greeting).await?;
    loop {
        let mut frame = vec![0; 7];
        from.read_exact(&mut frame).await?;
        let length = u32::from_be_bytes(frame[3..7].try_into().unwrap());
        frame.resize(7 + usize::try_from(length).unwrap() + 1, 0);
        from.read_exact(&mut frame[7..]).await?;
        if frame[0] == 1 && frame[7..].starts_with(&ACKNOWLEDGEMENT) {
            if counts.lose.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok() {
                continue;
            }
            counts.passed.fetch_add(1, Ordering::AcqRel);
        }
        to.write_all(&frame).await?;
    }
}
