//! AMQP's frames, as far as the proxy must know them.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::proxy::{Counts, Frames};

pub(crate) type Proxy = crate::proxy::Proxy<Amqp>;

/// A greeting, then frames: a type, a channel, a length, that many bytes, and an end.
pub(crate) struct Amqp;

impl Frames for Amqp {
    async fn carry(from: &mut OwnedReadHalf, to: &mut OwnedWriteHalf, counts: &Counts) -> std::io::Result<()> {
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
            if frame[0] == 1 && frame[7..].starts_with(&ACKNOWLEDGEMENT) && !counts.may_pass() {
                continue;
            }
            to.write_all(&frame).await?;
        }
    }
}
