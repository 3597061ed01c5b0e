-- Version 1 of the inbox's tables: what `Inbox::migrate` runs.

CREATE TABLE IF NOT EXISTS "main".inbox_schema (version BIGINT NOT NULL PRIMARY KEY, applied_at BIGINT NOT NULL);

CREATE TABLE "main".inbox_consumers (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    sources TEXT NOT NULL,
    key_template TEXT NOT NULL,
    first_at INTEGER NOT NULL,
    seen_at INTEGER NOT NULL,
    pruned_at INTEGER NOT NULL
) STRICT;

CREATE TABLE "main".inbox (
    consumer INTEGER NOT NULL,
    message_key TEXT NOT NULL CHECK (length(message_key) BETWEEN 1 AND 255),
    received_at INTEGER NOT NULL,
    payload INTEGER NOT NULL,
    PRIMARY KEY (consumer, message_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE "main".inbox_attempts (
    consumer INTEGER NOT NULL,
    message_key TEXT NOT NULL,
    failures INTEGER NOT NULL,
    starts INTEGER NOT NULL,
    last_error TEXT NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (consumer, message_key)
) STRICT, WITHOUT ROWID;

CREATE TABLE "main".inbox_dead_letters (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    consumer INTEGER NOT NULL,
    identity TEXT NOT NULL CHECK (length(identity) <= 320),
    message_key TEXT,
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
) STRICT;

CREATE INDEX "main".inbox_dead_letters_by_key ON inbox_dead_letters (consumer, message_key);

CREATE INDEX "main".inbox_dead_letters_by_state ON inbox_dead_letters (state, consumer, redrive_at);

INSERT INTO "main".inbox_schema (version, applied_at) VALUES (1, COALESCE(CAST(unixepoch('subsec') * 1000000 AS INTEGER), 0));
