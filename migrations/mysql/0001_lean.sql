-- Version 1 of the inbox's tables: what `Inbox::migrate` runs.

CREATE TABLE IF NOT EXISTS inbox_schema (version BIGINT NOT NULL PRIMARY KEY, applied_at BIGINT NOT NULL);

CREATE TABLE IF NOT EXISTS inbox_consumers (
    id INT NOT NULL AUTO_INCREMENT,
    name VARBINARY(512) NOT NULL,
    sources VARBINARY(16000) NOT NULL,
    key_template VARBINARY(4000) NOT NULL,
    first_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL,
    pruned_at BIGINT NOT NULL,
    PRIMARY KEY (name),
    UNIQUE KEY by_id (id)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS inbox (
    consumer INT NOT NULL,
    message_key BINARY(16) NOT NULL,
    received_at BIGINT NOT NULL,
    payload INT NOT NULL,
    claim BIGINT NULL,
    PRIMARY KEY (consumer, message_key)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS inbox_attempts (
    consumer INT NOT NULL,
    message_key BINARY(16) NOT NULL,
    key_text VARBINARY(255) NOT NULL,
    failures INT NOT NULL,
    starts INT NOT NULL,
    last_error VARBINARY(8000) NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (consumer, message_key)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS inbox_dead_letters (
    id BIGINT NOT NULL AUTO_INCREMENT,
    consumer INT NOT NULL,
    identity VARBINARY(320) NOT NULL,
    message_key BINARY(16) NULL,
    key_text VARBINARY(255) NULL,
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
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

INSERT INTO inbox_schema (version, applied_at) VALUES (1, COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)), 0));
