//! NATS's protocol, as far as the proxy must know it.

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::proxy::{Counts, Frames};

pub(crate) type Proxy = crate::proxy::Proxy<Lines>;

/// A line, and behind that of a publication its bytes.
pub(crate) struct Lines;

impl Frames for Lines {
    async fn carry(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, counts: &Counts) -> std::io::Result<()> {
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
                if body.starts_with(b"+ACK") && !counts.may_pass() {
                    continue;
                }
                frame.extend(body);
            }
            to.write_all(&frame).await?;
        }
    }
}
