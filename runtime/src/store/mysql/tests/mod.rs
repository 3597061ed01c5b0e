//! MySQL in the store suite, and what only MySQL and MariaDB do.

mod fixture;

use crate::store::suite::suite;

suite!(super::fixture::MySqlDatabase);
