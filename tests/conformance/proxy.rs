//! A proxy before a server, for what happens to connections. It knows the broker's frames, and so acknowledgements.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// How a broker's client speaks.
pub(crate) trait Frames: 'static {
    /// Carries what a client says, frame by frame; an acknowledgement only if it [may pass](Counts::may_pass).
    fn carry(
        from: &mut OwnedReadHalf,
        to: &mut OwnedWriteHalf,
        counts: &Counts,
    ) -> impl Future<Output = std::io::Result<()>> + Send;
}

/// What has become of the connections that there were at a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Flows,
    /// Open, and nothing comes through.
    Silent,
    Cut,
}

pub(crate) struct Proxy<F> {
    url: String,
    /// Connections go by the value that was set before they began, until it is set anew.
    fate: watch::Sender<Fate>,
    counts: Arc<Counts>,
    frames: PhantomData<F>,
}

#[derive(Default)]
pub(crate) struct Counts {
    /// How many acknowledgements are still to be lost.
    lose: AtomicUsize,
    /// How many were let through.
    passed: AtomicUsize,
}

impl Counts {
    /// Counts an acknowledgement, and whether it goes on to the server.
    pub(crate) fn may_pass(&self) -> bool {
        let lost = self.lose.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).is_ok();
        if !lost {
            self.passed.fetch_add(1, Ordering::AcqRel);
        }
        !lost
    }
}

impl<F: Frames> Proxy<F> {
    pub(crate) async fn to(url: &str) -> Self {
        let host = url.rfind('@').map_or_else(|| url.find("://").unwrap() + 3, |at| at + 1);
        let (login, server) = url.split_at(host);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{login}127.0.0.1:{}", listener.local_addr().unwrap().port());
        let (fate, counts, server) = (watch::Sender::new(Fate::Flows), Arc::<Counts>::default(), server.to_owned());
        let (fates, counting) = (fate.clone(), Arc::clone(&counts));
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&server).await else { continue };
                tokio::spawn(connect::<F>(client, server, fates.subscribe(), Arc::clone(&counting)));
            }
        });
        Self { url, fate, counts, frames: PhantomData }
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

async fn connect<F: Frames>(
    client: TcpStream,
    server: TcpStream,
    mut fate: watch::Receiver<Fate>,
    counts: Arc<Counts>,
) {
    fate.mark_unchanged();
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let carried = async {
        tokio::select! {
            _ = F::carry(&mut from_client, &mut to_server, &counts) => {}
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
