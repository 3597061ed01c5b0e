-- Version 1 of the inbox's tables: what `Inbox::migrate` runs.

CREATE TABLE IF NOT EXISTS "public".inbox_schema (version BIGINT NOT NULL PRIMARY KEY, applied_at BIGINT NOT NULL);

CREATE TABLE "public".inbox_consumers (
    id INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name TEXT COLLATE "C" NOT NULL UNIQUE,
    sources TEXT COLLATE "C" NOT NULL,
    key_template TEXT COLLATE "C" NOT NULL,
    first_at BIGINT NOT NULL,
    seen_at BIGINT NOT NULL,
    pruned_at BIGINT NOT NULL
);

CREATE TABLE "public".inbox (
    received_at BIGINT NOT NULL,
    payload INTEGER NOT NULL,
    consumer INTEGER NOT NULL,
    message_key UUID NOT NULL,
    PRIMARY KEY (consumer, message_key)
);

CREATE FUNCTION "public".inbox_guard() RETURNS trigger LANGUAGE plpgsql AS $guard$
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
$guard$;

CREATE CONSTRAINT TRIGGER inbox_guard AFTER INSERT ON "public".inbox DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION "public".inbox_guard();

CREATE TABLE "public".inbox_attempts (
    consumer INTEGER NOT NULL,
    message_key UUID NOT NULL,
    key_text TEXT COLLATE "C" NOT NULL,
    failures BIGINT NOT NULL,
    starts BIGINT NOT NULL,
    last_error TEXT COLLATE "C" NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (consumer, message_key)
);

CREATE TABLE "public".inbox_dead_letters (
    id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    consumer INTEGER NOT NULL,
    identity TEXT COLLATE "C" NOT NULL CHECK (length(identity) <= 320),
    message_key UUID,
    key_text TEXT COLLATE "C",
    source TEXT COLLATE "C" NOT NULL,
    body BYTEA NOT NULL,
    headers BYTEA NOT NULL,
    reason TEXT COLLATE "C" NOT NULL,
    error TEXT COLLATE "C" NOT NULL,
    attempts BIGINT NOT NULL,
    state TEXT COLLATE "C" NOT NULL CHECK (state IN ('open', 'redrive', 'done', 'discarded')),
    sent_at BIGINT,
    first_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    redrive_at BIGINT,
    UNIQUE (consumer, identity)
);

CREATE INDEX inbox_dead_letters_by_key ON "public".inbox_dead_letters (consumer, message_key);

CREATE INDEX inbox_dead_letters_by_state ON "public".inbox_dead_letters (state, consumer, redrive_at);

INSERT INTO "public".inbox_schema (version, applied_at) VALUES (1, COALESCE((date_part('epoch', statement_timestamp()) * 1000000)::bigint, 0));
