//! On the Postgres server that the environment names.

#[path = "../promise/answers.rs"]
mod answers;
#[path = "../promise/departures.rs"]
mod departures;
#[path = "../promise/handlers.rs"]
mod handlers;
#[path = "../promise/limits.rs"]
mod limits;
#[path = "../promise/sender.rs"]
mod sender;
#[path = "../promise/shutdown.rs"]
mod shutdown;
#[path = "../promise/signature.rs"]
mod signature;

mod outage;

#[path = "../../common/postgres.rs"]
mod database;

pub(crate) use self::database::*;
