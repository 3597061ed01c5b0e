//! SQLite's tables, and how those of a database differ from them.

use std::collections::BTreeSet;

use sqlx::{Connection as _, Sqlite, SqliteConnection};

use crate::error::Error;
use crate::store::tables::Tables;
use crate::store::{Inbox, Row, Store as _};

pub(super) const MIGRATIONS: &[&[&str]] = &[&[
    "CREATE TABLE {consumers} (
        id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL UNIQUE,
        sources TEXT NOT NULL,
        key_template TEXT NOT NULL,
        first_at INTEGER NOT NULL,
        seen_at INTEGER NOT NULL,
        pruned_at INTEGER NOT NULL
    ) STRICT",
    "CREATE TABLE {inbox} (
        consumer INTEGER NOT NULL,
        {text} message_key TEXT NOT NULL CHECK (length(message_key) BETWEEN 1 AND 255),
        {lean} message_key BLOB NOT NULL CHECK (length(message_key) = 16),
        received_at INTEGER NOT NULL,
        payload INTEGER NOT NULL,
        PRIMARY KEY (consumer, message_key)
    ) STRICT, WITHOUT ROWID",
    "CREATE TABLE {attempts} (
        consumer INTEGER NOT NULL,
        {text} message_key TEXT NOT NULL,
        {lean} message_key BLOB NOT NULL CHECK (length(message_key) = 16),
        {lean} key_text TEXT NOT NULL,
        failures INTEGER NOT NULL,
        starts INTEGER NOT NULL,
        last_error TEXT NOT NULL,
        updated_at INTEGER NOT NULL,
        PRIMARY KEY (consumer, message_key)
    ) STRICT, WITHOUT ROWID",
    "CREATE TABLE {dead_letters} (
        id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
        consumer INTEGER NOT NULL,
        identity TEXT NOT NULL CHECK (length(identity) <= 320),
        {text} message_key TEXT,
        {lean} message_key BLOB,
        {lean} key_text TEXT,
        source TEXT NOT NULL,
        body BLOB NOT NULL,
        headers BLOB NOT NULL,
        reason TEXT NOT NULL,
        error TEXT NOT NULL,
        attempts INTEGER NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('open', 'redrive', 'done', 'discarded')),
        sent_at INTEGER,
        first_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        redrive_at INTEGER,
        UNIQUE (consumer, identity)
    ) STRICT",
    "CREATE INDEX \"main\".{prefix}_dead_letters_by_key ON {prefix}_dead_letters (consumer, message_key)",
    "CREATE INDEX \"main\".{prefix}_dead_letters_by_state ON {prefix}_dead_letters (state, consumer, redrive_at)",
]];

/// Compares the tables with those that the migrations make in an empty database.
pub(super) async fn differences(inbox: &Inbox<Sqlite>) -> Result<Vec<String>, Error> {
    let mut model = SqliteConnection::connect("sqlite::memory:").await?;
    for version in MIGRATIONS {
        for statement in *version {
            Sqlite::run(&mut model, &inbox.ddl(statement), Vec::new()).await?;
        }
    }
    let expected = facts(&mut model, inbox.tables()).await?;
    model.close().await?;
    let mut connection = inbox.pool().acquire().await?;
    let found = facts(&mut connection, inbox.tables()).await?;
    let missing = expected.difference(&found).map(|fact| format!("missing: {fact}"));
    let foreign = found.difference(&expected).map(|fact| format!("not ours: {fact}"));
    Ok(missing.chain(foreign).collect())
}

/// What can be said of the tables, a line each.
async fn facts(connection: &mut SqliteConnection, tables: &Tables) -> Result<BTreeSet<String>, sqlx::Error> {
    let mut facts = BTreeSet::new();
    for (placeholder, table) in tables.names() {
        if placeholder == "{schema}" {
            continue;
        }
        // The pragmas take the schema apart from the name.
        let table = table.rsplit('.').next().unwrap_or_default();
        for fact in table_facts(connection, table).await? {
            facts.insert(format!("`{table}`: {fact}"));
        }
    }
    Ok(facts)
}

async fn table_facts(connection: &mut SqliteConnection, table: &str) -> Result<Vec<String>, sqlx::Error> {
    let mut facts = Vec::new();
    let kinds = "SELECT type, wr, strict FROM pragma_table_list(?) WHERE schema = 'main'";
    for row in Sqlite::run(connection, kinds, vec![table.into()]).await? {
        let (without_rowid, strict) = (row.int(1)? == 1, row.int(2)? == 1);
        facts.push(format!("a {}, STRICT {strict}, WITHOUT ROWID {without_rowid}", row.text(0)?));
    }
    let columns = "SELECT name, type, \"notnull\", pk FROM pragma_table_info(?, 'main')";
    for row in Sqlite::run(connection, columns, vec![table.into()]).await? {
        let null = if row.int(2)? == 1 { " NOT NULL" } else { "" };
        let key = if row.int(3)? > 0 { format!(", number {} in the primary key", row.int(3)?) } else { String::new() };
        facts.push(format!("column {} {}{null}{key}", row.text(0)?, row.text(1)?));
    }
    // Other indexes cost time but refuse nothing.
    let keys = "SELECT list.name, group_concat(part.name || ' ' || part.coll, ', ' ORDER BY part.seqno) \
                FROM pragma_index_list(?, 'main') AS list, pragma_index_xinfo(list.name, 'main') AS part \
                WHERE list.\"unique\" = 1 AND part.key = 1 GROUP BY list.name";
    for row in Sqlite::run(connection, keys, vec![table.into()]).await? {
        facts.push(format!("unique ({})", row.optional(1, Row::text)?.unwrap_or_default()));
    }
    let triggers = "SELECT name FROM main.sqlite_master WHERE type = 'trigger' AND lower(tbl_name) = lower(?)";
    for row in Sqlite::run(connection, triggers, vec![table.into()]).await? {
        facts.push(format!("trigger {}", row.text(0)?));
    }
    Ok(facts)
}
