-- Version 2 of the inbox's tables: what `Inbox::migrate` runs.

ALTER TABLE "public".inbox SET (autovacuum_vacuum_scale_factor = 0.05);

INSERT INTO "public".inbox_schema (version, applied_at) VALUES (2, COALESCE((date_part('epoch', statement_timestamp()) * 1000000)::bigint, 0));
