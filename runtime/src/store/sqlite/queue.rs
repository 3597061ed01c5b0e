//! Who may write next.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::{Class, Error};

/// The fair queue of this process's writers to one file, shared by all its inboxes.
#[derive(Clone, Debug)]
pub(super) struct WriterQueue(Arc<Semaphore>);

/// The right to write, until it is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    _permit: OwnedSemaphorePermit,
}

static QUEUES: LazyLock<Mutex<HashMap<PathBuf, Weak<Semaphore>>>> = LazyLock::new(Mutex::default);

impl WriterQueue {
    /// The queue of the file that the options name.
    pub(super) fn of(options: &SqliteConnectOptions) -> Self {
        let file = options.get_filename();
        let mut queues = QUEUES.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|_, queue| queue.strong_count() > 0);
        let name = canonical(file);
        if let Some(queue) = queues.get(&name).and_then(Weak::upgrade) {
            return Self(queue);
        }
        let queue = Arc::new(Semaphore::new(1));
        queues.insert(name, Arc::downgrade(&queue));
        Self(queue)
    }

    /// Waits for this process's earlier writers.
    pub(super) async fn turn(&self, wait: Duration) -> Result<Turn, Error> {
        // Fair all the same: a permit that somebody waits for is never free.
        if let Ok(permit) = Arc::clone(&self.0).try_acquire_owned() {
            return Ok(Turn { _permit: permit });
        }
        match tokio::time::timeout(wait, Arc::clone(&self.0).acquire_owned()).await {
            Ok(Ok(permit)) => Ok(Turn { _permit: permit }),
            Ok(Err(closed)) => Err(Error::with_class(closed, Class::Unavailable)),
            Err(_) => {
                let text =
                    "another transaction of this process holds the write lock for longer than the claim may wait";
                Err(Error::with_class(text, Class::Unavailable))
            }
        }
    }
}

/// One name for a file, whichever way it is written. A file that isn't there yet has a folder that is.
fn canonical(file: &Path) -> PathBuf {
    if let Ok(whole) = file.canonicalize() {
        return whole;
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (folder.canonicalize(), file.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        _ => file.to_owned(),
    }
}

/// How long to wait before asking another process's lock again: short, and never in step with it.
pub(super) fn pause() -> Duration {
    Duration::from_micros(fastrand::u64(1_000..8_000))
}
