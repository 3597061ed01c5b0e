//! The accounts in MySQL or MariaDB.

#[path = "accounts.rs"]
mod accounts;
#[path = "controls.rs"]
mod controls;

pub(crate) use accounts::{books, consume, prepare};

pub(crate) type Db = sqlx::MySql;
pub(crate) type Connection = sqlx::MySqlConnection;

const POST: &str = "UPDATE balances SET balance = balance + ? WHERE account = ?";
const EFFECT: &str = "INSERT INTO effects (id, account, amount) VALUES (?, ?, ?)";

const BEGIN: &str = "START TRANSACTION";
const CLAIM: &str = "INSERT IGNORE INTO by_hand_claims (id) VALUES (?)";
const LOOK: &str = "SELECT id FROM by_hand_seen WHERE id = ?";
const SEE: &str = "INSERT INTO by_hand_seen (id) VALUES (?)";
/// An error undoes its statement alone here, unless it is a deadlock: this is what that does.
const SPOIL: &str = "ROLLBACK";
