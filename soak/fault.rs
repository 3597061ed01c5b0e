//! Where a consumer process stands still to be killed: the supervisor names a point of the one order on its standard input.

use std::io::{BufRead as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};

use inboxed::testing::FaultPoint;

use crate::tally::{Mark, Tally};

/// The points at which this process is to stop, by the supervisor's word.
#[derive(Clone)]
pub(crate) struct Faults {
    /// The point, and how often it is passed before.
    armed: Arc<Mutex<Option<(FaultPoint, u32)>>>,
    tally: Arc<Tally>,
}

/// What a consumer says when it stands at its point.
pub(crate) const REACHED: &str = "reached";

impl Faults {
    /// Takes points from the standard input: `Claimed 3`. Its end is the supervisor's, and then this process's.
    pub(crate) fn from_supervisor(tally: Arc<Tally>) -> Self {
        let faults = Self { armed: Arc::default(), tally };
        let armed = Arc::clone(&faults.armed);
        std::thread::spawn(move || {
            for line in std::io::stdin().lock().lines().map_while(Result::ok) {
                let point = line
                    .split_once(' ')
                    .and_then(|(name, passes)| Some((FaultPoint::by_name(name)?, passes.parse().ok()?)));
                *armed.lock().unwrap_or_else(PoisonError::into_inner) = point;
            }
            std::process::exit(3);
        });
        faults
    }

    /// Passes a point, or stops there: this thread, with all that it holds, until the process is killed.
    pub(crate) fn reach(&self, point: FaultPoint) {
        if point == FaultPoint::Received {
            self.tally.note(Mark::Delivered);
        }
        let mut armed = self.armed.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *armed {
            Some((at, 0)) if *at == point => {
                *armed = None;
                println!("{REACHED} {point}");
                let _ = std::io::stdout().flush();
            }
            Some((at, passes)) if *at == point => {
                *passes -= 1;
                return;
            }
            _ => return,
        }
        // The lock stays held, so that nobody passes any point meanwhile.
        loop {
            std::thread::park();
        }
    }
}
