//! The accounts in Postgres.

#[path = "accounts.rs"]
mod accounts;
#[path = "controls.rs"]
mod controls;

pub(crate) use accounts::{books, consume, prepare};

pub(crate) type Db = sqlx::Postgres;
pub(crate) type Connection = sqlx::PgConnection;

const POST: &str = "UPDATE balances SET balance = balance + $1 WHERE account = $2";
const EFFECT: &str = "INSERT INTO effects (id, account, amount) VALUES ($1, $2, $3)";

const BEGIN: &str = "BEGIN";
const CLAIM: &str = "INSERT INTO by_hand_claims (id) VALUES ($1) ON CONFLICT DO NOTHING";
const LOOK: &str = "SELECT id FROM by_hand_seen WHERE id = $1";
const SEE: &str = "INSERT INTO by_hand_seen (id) VALUES ($1)";
/// Fails, and with it the transaction; its COMMIT answers that all is well.
const SPOIL: &str = "INSERT INTO balances (account, balance) VALUES (1, 0)";
