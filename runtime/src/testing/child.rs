//! A crash in a child process: the same test, run up to its exploration, and there ended by `abort`.

use std::process::{Command, Stdio};
use std::time::Duration;

use super::explore::Explore;
use crate::fault::FaultPoint;
use crate::store::Store;

/// In a child process: the point to abort at and the message's number, `Claimed/17`.
const CRASH: &str = "INBOXED_EXPLORE_CRASH";

/// In a child process: the parent's database, since the child's test has made another.
const DATABASE: &str = "INBOXED_EXPLORE_DATABASE";

/// The last point lies behind the outcome; a process that reaches none ends after this.
const LAST_POINT: Duration = Duration::from_secs(5);

/// What this process is to do, if it is a child.
pub(super) struct Crash {
    point: FaultPoint,
    n: u64,
    database: String,
}

impl Crash {
    pub(super) fn of_this_process() -> Option<Self> {
        let (crash, database) = (std::env::var(CRASH).ok()?, std::env::var(DATABASE).ok()?);
        let (point, n) = crash.split_once('/')?;
        Some(Self { point: FaultPoint::by_name(point)?, n: n.parse().ok()?, database })
    }

    /// Delivers the message and aborts at the point.
    pub(super) async fn run<Db: Store, S: Send + Sync + 'static>(self, explore: &Explore<Db, S>) -> ! {
        let Self { point, n, database } = self;
        let consumer = explore.process(database).await.on_fault_point(move |reached| {
            if reached == point {
                std::process::abort();
            }
        });
        let _ = explore.deliver(&consumer, explore.message(n)).await;
        tokio::time::sleep(LAST_POINT).await;
        std::process::exit(0)
    }
}

/// Runs the test in a child process that crashes there; the error is why it didn't.
pub(super) async fn crash(test: Option<&str>, database: &str, point: FaultPoint, n: u64) -> Result<(), String> {
    let thread = std::thread::current();
    let test = match (test, thread.name()) {
        (Some(test), _) => test,
        (None, Some(thread)) if thread != "main" => thread,
        _ => return Err("the thread hasn't the test's name; set it by `.test(\"module::name\")`".to_owned()),
    };
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut child = Command::new(program);
    child.args(["--exact", test, "--nocapture", "--include-ignored"]);
    child.env(CRASH, format!("{point}/{n}")).env(DATABASE, database);
    child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let ended = tokio::task::spawn_blocking(move || child.output()).await.map_err(|error| error.to_string())?;
    let ended = ended.map_err(|error| error.to_string())?;
    if ended.status.code().is_none() {
        return Ok(());
    }
    let said = [ended.stdout, ended.stderr].concat();
    Err(format!("the child that ran `{test}` ended with {}: {}", ended.status, String::from_utf8_lossy(&said).trim()))
}
