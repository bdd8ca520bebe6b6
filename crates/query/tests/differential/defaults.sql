-- Defaults as the catalog shows them: whether they were written as texts or as numbers.
CREATE TABLE t (a numeric(8, 2) DEFAULT '0', b numeric DEFAULT '0', c numeric DEFAULT 0, d numeric(8, 2) DEFAULT 0, e numeric DEFAULT '-1.5', f numeric(8, 2) DEFAULT '1.5', g float8 DEFAULT '0', h bigint DEFAULT '5', i smallint DEFAULT '3', j integer DEFAULT '4', k real DEFAULT '1.5', l char(3) DEFAULT 'a', m numeric DEFAULT '1e3', n oid DEFAULT '5', o numeric DEFAULT 1.50, p numeric DEFAULT 'NaN', q bigint DEFAULT 7, r float8 DEFAULT 0.5, s boolean DEFAULT 'true', u integer DEFAULT '-4', v bigint DEFAULT '-5', w smallint DEFAULT 2, x numeric DEFAULT '0'::numeric, y date DEFAULT '2024-01-01', z text DEFAULT '5');
SELECT attname, pg_get_expr(adbin, adrelid), pg_get_expr(adbin, adrelid, true) FROM pg_attrdef JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum WHERE adrelid = 't'::regclass ORDER BY attnum;
INSERT INTO t DEFAULT VALUES;
SELECT * FROM t;
SELECT column_name, column_default FROM information_schema.columns WHERE table_name = 't' AND table_schema = current_schema() ORDER BY ordinal_position;
ALTER TABLE t ALTER COLUMN c SET DEFAULT '7', ALTER COLUMN h SET DEFAULT '9', ALTER COLUMN j SET DEFAULT '10';
SELECT attname, pg_get_expr(adbin, adrelid) FROM pg_attrdef JOIN pg_attribute ON attrelid = adrelid AND attnum = adnum WHERE adrelid = 't'::regclass AND attname IN ('c', 'h', 'j') ORDER BY attnum;
