//! Postgres' tables, and how those of a database differ from them.

use std::collections::BTreeSet;

use sqlx::Postgres;

use crate::error::Error;
use crate::store::{Inbox, Risk};

/// The guard fails a COMMIT that isn't the inbox's own, since a body's would part the claim from what it writes
/// afterwards; and makes ours durable, whatever the session or the body has set.
///
/// The inbox's table has no CHECK, its trigger no WHEN and `received_at` no index: each costs every message 10 µs of the
/// server, and pages that are used again soon mix ages so that a BRIN index tells nothing.
pub(super) const MIGRATIONS: &[&[&str]] = &[TABLES, VACUUM];

const TABLES: &[&str] = &[
    "CREATE TABLE {consumers} (
        id INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name TEXT COLLATE \"C\" NOT NULL UNIQUE,
        sources TEXT COLLATE \"C\" NOT NULL,
        key_template TEXT COLLATE \"C\" NOT NULL,
        first_at BIGINT NOT NULL,
        seen_at BIGINT NOT NULL,
        pruned_at BIGINT NOT NULL
    )",
    "CREATE TABLE {inbox} (
        received_at BIGINT NOT NULL,
        payload INTEGER NOT NULL,
        consumer INTEGER NOT NULL,
        {text} message_key TEXT COLLATE \"C\" NOT NULL,
        {lean} message_key UUID NOT NULL,
        PRIMARY KEY (consumer, message_key)
    )",
    "CREATE FUNCTION {inbox}_guard() RETURNS trigger LANGUAGE plpgsql AS $guard$
        BEGIN
            IF current_setting('inboxed.guard', true) = 'on' THEN
                RAISE EXCEPTION 'the body of a handler sent COMMIT'
                    USING ERRCODE = '2D000', HINT = 'leave the end of the transaction to the inbox';
            END IF;
            IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
                PERFORM set_config('synchronous_commit', 'on', true);
            END IF;
            RETURN NULL;
        END
    $guard$",
    "CREATE CONSTRAINT TRIGGER {prefix}_guard AFTER INSERT ON {inbox} DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION {inbox}_guard()",
    "CREATE TABLE {attempts} (
        consumer INTEGER NOT NULL,
        {text} message_key TEXT COLLATE \"C\" NOT NULL,
        {lean} message_key UUID NOT NULL,
        {lean} key_text TEXT COLLATE \"C\" NOT NULL,
        failures BIGINT NOT NULL,
        starts BIGINT NOT NULL,
        last_error TEXT COLLATE \"C\" NOT NULL,
        updated_at BIGINT NOT NULL,
        PRIMARY KEY (consumer, message_key)
    )",
    "CREATE TABLE {dead_letters} (
        id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        consumer INTEGER NOT NULL,
        identity TEXT COLLATE \"C\" NOT NULL CHECK (length(identity) <= 320),
        {text} message_key TEXT COLLATE \"C\",
        {lean} message_key UUID,
        {lean} key_text TEXT COLLATE \"C\",
        source TEXT COLLATE \"C\" NOT NULL,
        body BYTEA NOT NULL,
        headers BYTEA NOT NULL,
        reason TEXT COLLATE \"C\" NOT NULL,
        error TEXT COLLATE \"C\" NOT NULL,
        attempts BIGINT NOT NULL,
        state TEXT COLLATE \"C\" NOT NULL CHECK (state IN ('open', 'redrive', 'done', 'discarded')),
        sent_at BIGINT,
        first_at BIGINT NOT NULL,
        updated_at BIGINT NOT NULL,
        redrive_at BIGINT,
        UNIQUE (consumer, identity)
    )",
    "CREATE INDEX {prefix}_dead_letters_by_key ON {dead_letters} (consumer, message_key)",
    "CREATE INDEX {prefix}_dead_letters_by_state ON {dead_letters} (state, consumer, redrive_at)",
];

/// By default a fifth of the rows must be dead before their place is used again: with a month's rows, a week's.
const VACUUM: &[&str] = &["ALTER TABLE {inbox} SET (autovacuum_vacuum_scale_factor = 0.05)"];

/// What [`facts`] must find, after the table's name.
const EXPECTED: &[(&str, &[&str])] = &[
    (
        "{consumers}",
        &[
            "an ordinary table",
            "column id integer NOT NULL",
            "column name text COLLATE C NOT NULL",
            "column sources text COLLATE C NOT NULL",
            "column key_template text COLLATE C NOT NULL",
            "column first_at bigint NOT NULL",
            "column seen_at bigint NOT NULL",
            "column pruned_at bigint NOT NULL",
            "unique (id)",
            "unique (name)",
        ],
    ),
    (
        "{inbox}",
        &[
            "an ordinary table",
            "column received_at bigint NOT NULL",
            "column payload integer NOT NULL",
            "column consumer integer NOT NULL",
            "{text} column message_key text COLLATE C NOT NULL",
            "{lean} column message_key uuid NOT NULL",
            "unique (consumer, message_key)",
            "trigger {prefix}_guard, type 5, deferred, calling {inbox}_guard as migrated",
        ],
    ),
    (
        "{attempts}",
        &[
            "an ordinary table",
            "column consumer integer NOT NULL",
            "{text} column message_key text COLLATE C NOT NULL",
            "{lean} column message_key uuid NOT NULL",
            "{lean} column key_text text COLLATE C NOT NULL",
            "column failures bigint NOT NULL",
            "column starts bigint NOT NULL",
            "column last_error text COLLATE C NOT NULL",
            "column updated_at bigint NOT NULL",
            "unique (consumer, message_key)",
        ],
    ),
    (
        "{dead_letters}",
        &[
            "an ordinary table",
            "column id bigint NOT NULL",
            "column consumer integer NOT NULL",
            "column identity text COLLATE C NOT NULL",
            "{text} column message_key text COLLATE C",
            "{lean} column message_key uuid",
            "{lean} column key_text text COLLATE C",
            "column source text COLLATE C NOT NULL",
            "column body bytea NOT NULL",
            "column headers bytea NOT NULL",
            "column reason text COLLATE C NOT NULL",
            "column error text COLLATE C NOT NULL",
            "column attempts bigint NOT NULL",
            "column state text COLLATE C NOT NULL",
            "column sent_at bigint",
            "column first_at bigint NOT NULL",
            "column updated_at bigint NOT NULL",
            "column redrive_at bigint",
            "unique (id)",
            "unique (consumer, identity)",
        ],
    ),
];

/// What can be said of a table, a line each. The guard's function is compared by its words.
const FACTS: &str = r"
SELECT CASE WHEN relkind = 'r' AND NOT relrowsecurity THEN 'an ordinary table'
            ELSE 'kind ' || relkind::text || ', row level security ' || relrowsecurity::text END
  FROM pg_class WHERE oid = to_regclass(?)
UNION ALL
SELECT 'column ' || attname || ' ' || format_type(atttypid, atttypmod)
       || coalesce((SELECT ' COLLATE ' || collname FROM pg_collation WHERE pg_collation.oid = attcollation), '')
       || CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END
  FROM pg_attribute WHERE attrelid = to_regclass(?) AND attnum > 0 AND NOT attisdropped
UNION ALL
SELECT 'unique (' || (SELECT string_agg(attname, ', ' ORDER BY place) FROM unnest(indkey::smallint[]) WITH ORDINALITY
           AS part (number, place) JOIN pg_attribute ON attrelid = indrelid AND attnum = number AND place <= indnkeyatts) || ')'
       || CASE WHEN indpred IS NULL AND indexprs IS NULL AND indisvalid THEN '' ELSE ', partial or invalid' END
  FROM pg_index WHERE indrelid = to_regclass(?) AND indisunique
UNION ALL
SELECT 'trigger ' || tgname || ', type ' || tgtype
       || CASE WHEN tginitdeferred AND tgqual IS NULL AND tgenabled = 'O' THEN ', deferred'
               ELSE ', immediate, conditional or disabled' END
       || CASE WHEN tgfoid = to_regproc(?) AND regexp_replace(prosrc, E'\\s+', ' ', 'g') = regexp_replace(?, E'\\s+', ' ', 'g')
               THEN ', calling ' || ? || ' as migrated' ELSE ', calling another function' END
  FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid WHERE tgrelid = to_regclass(?) AND NOT tgisinternal
";

/// Compares the tables with those that the migrations make.
pub(super) async fn differences(inbox: &Inbox<Postgres>) -> Result<Vec<String>, Error> {
    let guard = inbox.sql("{inbox}_guard");
    let mut differences = Vec::new();
    for (placeholder, expected) in EXPECTED {
        let table = inbox.sql(placeholder);
        let name = || table.as_str().into();
        let (guard, body) = (|| guard.as_str().into(), guard_body().into());
        let arguments = vec![name(), name(), name(), guard(), body, guard(), name()];
        let rows = inbox.read(FACTS, arguments).await?;
        let found = rows.iter().map(|row| row.text(0).map(str::to_owned)).collect::<Result<BTreeSet<_>, _>>()?;
        let expected = inbox.facts_of_kind(expected);
        differences.extend(expected.difference(&found).map(|fact| format!("missing: {table}: {fact}")));
        differences.extend(found.difference(&expected).map(|fact| format!("not ours: {table}: {fact}")));
    }
    Ok(differences)
}

fn guard_body() -> &'static str {
    let create = MIGRATIONS.iter().flat_map(|version| version.iter()).find_map(|sql| sql.split("$guard$").nth(1));
    create.unwrap_or_default()
}

/// What of the server's settings could make a reported commit be forgotten. `synchronous_commit` is each transaction's.
pub(super) async fn risks(inbox: &Inbox<Postgres>) -> Result<Vec<Risk>, Error> {
    let mut risks = Vec::new();
    let fsync = inbox.read("SHOW fsync", Vec::new()).await?;
    if fsync.first().ok_or(sqlx::Error::RowNotFound)?.text(0)? != "on" {
        risks.push(Risk::FsyncOff);
    }
    let logged = "SELECT 1 FROM pg_class WHERE oid IN (to_regclass(?), to_regclass(?), to_regclass(?), to_regclass(?)) \
                  AND relpersistence <> 'p'";
    let tables = ["{inbox}", "{consumers}", "{attempts}", "{dead_letters}"];
    let unlogged = inbox.read(logged, tables.map(|table| inbox.sql(table).into()).to_vec()).await?;
    if !unlogged.is_empty() {
        risks.push(Risk::Unlogged);
    }
    Ok(risks)
}
