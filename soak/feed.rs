//! The memory broker's other half. It ends with its process, so what lasts is a file of publications: each process feeds
//! its own broker from there, and notes how far all is settled. After a kill the rest comes again: at least once.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use inboxed::memory::Memory;

use crate::ledger::{Message, SOURCES};
use crate::tally::{Mark, Tally};

/// The file of publications.
pub(crate) const QUEUE: &str = "queue";
/// Its last line.
pub(crate) const END: &str = "end";
/// What a consumer process says when everything is settled.
pub(crate) const DRAINED: &str = "drained";

/// How far everything is settled, in bytes.
const SETTLED: &str = "settled";
/// The acknowledgements of consumers written by hand.
const FORGOTTEN: &str = "forgotten";

/// So much may come again after a kill.
const MOST_AT_ONCE: usize = 200;

/// A broker as brokers are: some deliveries come twice, some acknowledgements are lost, the order is shaken.
pub(crate) fn broker(seed: u64) -> Memory {
    let lease = Duration::from_secs(2);
    Memory::builder().lease(lease).duplicates(0.02).lose_acks(0.02).reorder(16).seed(seed).build()
}

/// Feeds the broker until the end of the file, and lets its sources end there.
pub(crate) async fn feed(folder: &Path, broker: &Memory, tally: &Arc<Tally>) -> anyhow::Result<()> {
    let mut settled = match std::fs::read_to_string(folder.join(SETTLED)) {
        Ok(text) => text.parse()?,
        Err(_) => 0,
    };
    let mut forgotten = Forgotten::read(folder)?;
    let mut ended = false;
    while !ended {
        let waiting = waiting(folder, settled)?;
        for line in waiting.split_inclusive('\n').take(MOST_AT_ONCE) {
            settled += line.len() as u64;
            ended = line.trim_end() == END;
            if !ended {
                let message: Message = serde_json::from_str(line)?;
                if let Some(times @ 1..) = forgotten.get_mut(&message.id) {
                    *times -= 1;
                    continue;
                }
                tally.note(Mark::Fed);
                broker.publish(message.source(), line.trim_end().to_owned());
            }
        }
        for source in SOURCES {
            broker.settled(source).await;
        }
        forgotten.clear(); // what comes now has not been there before
        write(folder, settled)?;
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    println!("{DRAINED}");
    for source in SOURCES {
        broker.end_when_settled(source);
    }
    Ok(())
}

/// The whole lines behind this place.
fn waiting(folder: &Path, place: u64) -> anyhow::Result<String> {
    let mut file = File::open(folder.join(QUEUE))?;
    file.seek(SeekFrom::Start(place))?;
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
    Ok(text)
}

/// Replaces the note: a kill leaves the old one or the new one.
fn write(folder: &Path, settled: u64) -> anyhow::Result<()> {
    let new = folder.join("settled.new");
    File::create(&new)?.write_all(settled.to_string().as_bytes())?;
    Ok(std::fs::rename(new, folder.join(SETTLED))?)
}

/// What the broker has forgotten at once: `inboxed` acknowledges by a proof, behind which the file doesn't look, but one
/// who acknowledges first would otherwise be saved by all that comes again.
pub(crate) struct Forgotten(File);

impl Forgotten {
    pub(crate) fn open(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self(OpenOptions::new().create(true).append(true).open(folder.join(FORGOTTEN))?))
    }

    pub(crate) fn note(&self, id: i64) -> anyhow::Result<()> {
        Ok((&self.0).write_all(format!("{id}\n").as_bytes())?)
    }

    /// How often each message was acknowledged.
    fn read(folder: &Path) -> anyhow::Result<HashMap<i64, u32>> {
        let mut forgotten = HashMap::new();
        for line in std::fs::read_to_string(folder.join(FORGOTTEN)).unwrap_or_default().lines() {
            *forgotten.entry(line.parse()?).or_default() += 1;
        }
        Ok(forgotten)
    }
}
