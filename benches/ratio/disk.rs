//! What a commit waits for at least.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;

const WRITES: usize = 200;

/// How much a commit writes, about: a page.
const PAGE: [u8; 8192] = [1; 8192];

/// Says how long the disk of this folder takes to keep a page.
pub(crate) fn flush_time(folder: &Path) -> anyhow::Result<String> {
    let mut file =
        tempfile::NamedTempFile::new_in(folder).with_context(|| format!("can't write into {}", folder.display()))?;
    let mut times = Vec::with_capacity(WRITES);
    for _ in 0..WRITES {
        let began = Instant::now();
        file.write_all(&PAGE)?;
        file.as_file().sync_data()?;
        times.push(began.elapsed());
    }
    times.sort();
    let [median, most] = [WRITES / 2, WRITES - 1].map(|at| times.get(at).copied().unwrap_or(Duration::ZERO));
    Ok(format!("a written and synced page takes {median:.0?}, at most {most:.0?}, in {}", folder.display()))
}
