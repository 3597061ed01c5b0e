//! The test kit: runs a handler through the crashes and duplicates that production will bring.

mod child;
mod exploration;
mod explore;
mod no_store;
mod report;

pub use explore::{Explore, explore};
pub use no_store::{NoConnection, NoStore};
pub use report::{Finding, NotExact, Report};

pub use crate::fault::FaultPoint;
