//! The accounts in an SQLite file.

#[path = "accounts.rs"]
mod accounts;
#[path = "controls.rs"]
mod controls;

pub(crate) use accounts::{books, consume, prepare};

pub(crate) type Db = sqlx::Sqlite;
pub(crate) type Connection = sqlx::SqliteConnection;

const POST: &str = "UPDATE balances SET balance = balance + ? WHERE account = ?";
const EFFECT: &str = "INSERT INTO effects (id, account, amount) VALUES (?, ?, ?)";

const BEGIN: &str = "BEGIN IMMEDIATE";
const CLAIM: &str = "INSERT INTO by_hand_claims (id) VALUES (?) ON CONFLICT DO NOTHING";
const LOOK: &str = "SELECT id FROM by_hand_seen WHERE id = ?";
const SEE: &str = "INSERT INTO by_hand_seen (id) VALUES (?)";
/// Fails, and with it the transaction.
const SPOIL: &str = "INSERT OR ROLLBACK INTO balances (account, balance) VALUES (1, 0)";
