//! A way to a server that can be cut: consumers reach the broker and the database through it.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

pub(crate) struct Proxy {
    /// The server's URL, with the proxy's address in it.
    pub(crate) url: String,
    open: Arc<Mutex<JoinSet<()>>>,
}

impl Proxy {
    /// Stands before the server of this URL.
    pub(crate) async fn before(url: &str) -> anyhow::Result<Self> {
        let own = "the soak takes servers of its own, on 127.0.0.1";
        let (before, rest) = url.split_once("127.0.0.1:").context(own)?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (port, after) = rest.split_at(digits);
        let server = SocketAddr::from(([127, 0, 0, 1], port.parse().context(own)?));

        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("{before}127.0.0.1:{}{after}", listener.local_addr()?.port());
        let open = Arc::<Mutex<JoinSet<()>>>::default();
        let accepted = Arc::clone(&open);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let mut open = accepted.lock().unwrap_or_else(PoisonError::into_inner);
                while open.try_join_next().is_some() {}
                open.spawn(async move {
                    if let Ok(mut server) = TcpStream::connect(server).await {
                        let _ = (client.set_nodelay(true), server.set_nodelay(true));
                        let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                    }
                });
            }
        });
        Ok(Self { url, open })
    }

    /// Closes all connections in the middle of what they carry, and says how many.
    pub(crate) fn cut(&self) -> usize {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        while open.try_join_next().is_some() {}
        open.abort_all();
        open.len()
    }
}
