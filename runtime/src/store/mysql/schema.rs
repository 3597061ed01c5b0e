//! MySQL's tables, and how those of a database differ from them.

use std::collections::BTreeSet;

use sqlx::MySql;

use crate::error::Error;
use crate::store::{Inbox, Risk, Row, Value};

/// Text is VARBINARY: compared byte by byte, and kept as it is whatever the session's character set.
pub(super) const MIGRATIONS: &[&[&str]] = &[&[
    // The name is the primary key, so that two starts at once wait for each other and don't meet in a deadlock.
    "CREATE TABLE IF NOT EXISTS {consumers} (
        id INT NOT NULL AUTO_INCREMENT,
        name VARBINARY(512) NOT NULL,
        sources VARBINARY(16000) NOT NULL,
        key_template VARBINARY(4000) NOT NULL,
        first_at BIGINT NOT NULL,
        seen_at BIGINT NOT NULL,
        pruned_at BIGINT NOT NULL,
        PRIMARY KEY (name),
        UNIQUE KEY by_id (id)
    ) ENGINE = InnoDB ROW_FORMAT = DYNAMIC",
    "CREATE TABLE IF NOT EXISTS {inbox} (
        consumer INT NOT NULL,
        {text} message_key VARBINARY(255) NOT NULL,
        {lean} message_key BINARY(16) NOT NULL,
        received_at BIGINT NOT NULL,
        payload INT NOT NULL,
        claim BIGINT NULL,
        PRIMARY KEY (consumer, message_key)
    ) ENGINE = InnoDB ROW_FORMAT = DYNAMIC",
    "CREATE TABLE IF NOT EXISTS {attempts} (
        consumer INT NOT NULL,
        {text} message_key VARBINARY(255) NOT NULL,
        {lean} message_key BINARY(16) NOT NULL,
        {lean} key_text VARBINARY(255) NOT NULL,
        failures INT NOT NULL,
        starts INT NOT NULL,
        last_error VARBINARY(8000) NOT NULL,
        updated_at BIGINT NOT NULL,
        PRIMARY KEY (consumer, message_key)
    ) ENGINE = InnoDB ROW_FORMAT = DYNAMIC",
    "CREATE TABLE IF NOT EXISTS {dead_letters} (
        id BIGINT NOT NULL AUTO_INCREMENT,
        consumer INT NOT NULL,
        identity VARBINARY(320) NOT NULL,
        {text} message_key VARBINARY(255) NULL,
        {lean} message_key BINARY(16) NULL,
        {lean} key_text VARBINARY(255) NULL,
        source VARBINARY(4000) NOT NULL,
        body LONGBLOB NOT NULL,
        headers LONGBLOB NOT NULL,
        reason VARBINARY(32) NOT NULL,
        error VARBINARY(8000) NOT NULL,
        attempts INT NOT NULL,
        state VARBINARY(16) NOT NULL,
        sent_at BIGINT NULL,
        first_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        redrive_at BIGINT NULL,
        PRIMARY KEY (id),
        UNIQUE KEY by_identity (consumer, identity),
        KEY by_key (consumer, message_key),
        KEY by_state (state, consumer, redrive_at)
    ) ENGINE = InnoDB ROW_FORMAT = DYNAMIC",
]];

/// What `information_schema` says of the tables that the migrations make. Servers write types differently there, so
/// that the statements themselves can't be compared.
const EXPECTED: &[(&str, &[&str])] = &[
    (
        "{consumers}",
        &[
            "engine InnoDB",
            "column id int NOT NULL auto_increment",
            "column name varbinary(512) NOT NULL",
            "column sources varbinary(16000) NOT NULL",
            "column key_template varbinary(4000) NOT NULL",
            "column first_at bigint NOT NULL",
            "column seen_at bigint NOT NULL",
            "column pruned_at bigint NOT NULL",
            "unique (name)",
            "unique (id)",
        ],
    ),
    (
        "{inbox}",
        &[
            "engine InnoDB",
            "column consumer int NOT NULL",
            "{text} column message_key varbinary(255) NOT NULL",
            "{lean} column message_key binary(16) NOT NULL",
            "column received_at bigint NOT NULL",
            "column payload int NOT NULL",
            "column claim bigint",
            "unique (consumer, message_key)",
        ],
    ),
    (
        "{attempts}",
        &[
            "engine InnoDB",
            "column consumer int NOT NULL",
            "{text} column message_key varbinary(255) NOT NULL",
            "{lean} column message_key binary(16) NOT NULL",
            "{lean} column key_text varbinary(255) NOT NULL",
            "column failures int NOT NULL",
            "column starts int NOT NULL",
            "column last_error varbinary(8000) NOT NULL",
            "column updated_at bigint NOT NULL",
            "unique (consumer, message_key)",
        ],
    ),
    (
        "{dead_letters}",
        &[
            "engine InnoDB",
            "column id bigint NOT NULL auto_increment",
            "column consumer int NOT NULL",
            "column identity varbinary(320) NOT NULL",
            "{text} column message_key varbinary(255)",
            "{lean} column message_key binary(16)",
            "{lean} column key_text varbinary(255)",
            "column source varbinary(4000) NOT NULL",
            "column body longblob NOT NULL",
            "column headers longblob NOT NULL",
            "column reason varbinary(32) NOT NULL",
            "column error varbinary(8000) NOT NULL",
            "column attempts int NOT NULL",
            "column state varbinary(16) NOT NULL",
            "column sent_at bigint",
            "column first_at bigint NOT NULL",
            "column updated_at bigint NOT NULL",
            "column redrive_at bigint",
            "unique (id)",
            "unique (consumer, identity)",
        ],
    ),
];

/// Where a table is, as `information_schema` writes it.
struct Place {
    /// Nothing for the session's own database.
    database: Option<String>,
    name: String,
}

impl Place {
    fn of(inbox: &Inbox<MySql>, placeholder: &str) -> Self {
        let table = inbox.sql(placeholder);
        match table.trim_start_matches('`').rsplit_once("`.") {
            Some((database, name)) => Self { database: Some(database.to_owned()), name: name.to_owned() },
            None => Self { database: None, name: table },
        }
    }

    fn arguments(&self) -> Vec<Value> {
        vec![self.database.clone().map_or(Value::Null, Value::Text), self.name.as_str().into()]
    }
}

/// Compares the tables with those that the migrations make.
pub(super) async fn differences(inbox: &Inbox<MySql>) -> Result<Vec<String>, Error> {
    let mut differences = Vec::new();
    for (placeholder, expected) in EXPECTED {
        let table = Place::of(inbox, placeholder);
        let expected = inbox.facts_of_kind(expected);
        let found = facts(inbox, &table).await?;
        differences.extend(expected.difference(&found).map(|fact| format!("missing: `{}`: {fact}", table.name)));
        differences.extend(found.difference(&expected).map(|fact| format!("not ours: `{}`: {fact}", table.name)));
    }
    Ok(differences)
}

/// What can be said of a table, a line each.
async fn facts(inbox: &Inbox<MySql>, table: &Place) -> Result<BTreeSet<String>, Error> {
    let mut facts = BTreeSet::new();
    for row in inbox.read(ENGINE, table.arguments()).await? {
        facts.insert(format!("engine {}", row.optional(0, Row::text)?.unwrap_or("none")));
    }
    let columns = "SELECT column_name, data_type, CAST(character_maximum_length AS SIGNED), is_nullable, extra, \
                   column_type FROM information_schema.columns WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?";
    for row in inbox.read(columns, table.arguments()).await? {
        let kind = row.text(1)?.to_lowercase();
        let length = row.optional(2, Row::int)?.filter(|_| kind.ends_with("binary") || kind.ends_with("char"));
        let length = length.map_or(String::new(), |length| format!("({length})"));
        let sign = if row.text(5)?.contains("unsigned") { " unsigned" } else { "" };
        let null = if row.text(3)? == "NO" { " NOT NULL" } else { "" };
        let extra = row.text(4)?.to_lowercase();
        let extra = if extra.is_empty() { extra } else { format!(" {extra}") };
        facts.insert(format!("column {} {kind}{length}{sign}{null}{extra}", row.text(0)?));
    }
    // Other indexes cost time but refuse nothing. A part of a column would merge keys.
    let keys = "SELECT index_name, column_name, CAST(sub_part AS SIGNED) FROM information_schema.statistics \
                WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ? AND non_unique = 0 ORDER BY index_name, seq_in_index";
    let rows = inbox.read(keys, table.arguments()).await?;
    for key in rows.chunk_by(|one, next| one.text(0).ok() == next.text(0).ok()) {
        let part = |row: &Row| {
            let part = row.optional(2, Row::int)?.map_or(String::new(), |part| format!("({part})"));
            Ok(format!("{}{part}", row.text(1)?))
        };
        let parts = key.iter().map(part).collect::<Result<Vec<_>, sqlx::Error>>()?;
        facts.insert(format!("unique ({})", parts.join(", ")));
    }
    let triggers = "SELECT trigger_name FROM information_schema.triggers \
                    WHERE event_object_schema = COALESCE(?, DATABASE()) AND event_object_table = ?";
    for row in inbox.read(triggers, table.arguments()).await? {
        facts.insert(format!("trigger {}", row.text(0)?));
    }
    Ok(facts)
}

const ENGINE: &str =
    "SELECT engine FROM information_schema.tables WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?";

/// By what the server could forget a commit that it reported.
pub(super) async fn risks(inbox: &Inbox<MySql>) -> Result<Vec<Risk>, Error> {
    let mut risks = Vec::new();
    let flush = inbox.read("SELECT @@innodb_flush_log_at_trx_commit", Vec::new()).await?;
    // MariaDB's 3 writes as 1 does.
    if !matches!(flush.first().ok_or(sqlx::Error::RowNotFound)?.int(0)?, 1 | 3) {
        risks.push(Risk::FlushLogNotAtCommit);
    }
    let engine = inbox.read(ENGINE, Place::of(inbox, "{inbox}").arguments()).await?;
    if engine.iter().any(|row| row.optional(0, Row::text).is_ok_and(|engine| engine != Some("InnoDB"))) {
        risks.push(Risk::NotInnoDb);
    }
    Ok(risks)
}
