-- What psql does with statements and their results.
\set ON_ERROR_STOP off
\pset null (null)
SELECT id, name, born FROM app.customer ORDER BY id \gx
SELECT 1 AS a, 'x' AS b, 1.5::numeric(5, 2) AS c, now() AS d, ARRAY[1, 2] AS e, '{}'::jsonb AS f \gdesc
SELECT 'from gset' AS found, 7 AS number \gset
\echo :found :number
SELECT :'found' || '!' AS quoted, :number + 1 AS plus;
SELECT format('SELECT %s AS n', n) FROM generate_series(1, 3) AS n \gexec
SELECT last_value, is_called FROM app.customer_id_seq;
SELECT state, customer, count(*) FROM app.orders GROUP BY state, customer ORDER BY 1, 2 \crosstabview
\x auto
\x off
\pset format csv
TABLE plain ORDER BY a;
\pset format unaligned
TABLE plain ORDER BY a;
\pset format html
SELECT a FROM plain WHERE a = 1;
\pset format aligned
\timing on
SELECT 1;
\timing off

-- COPY in both directions
CREATE TABLE copied (a integer PRIMARY KEY, b text, c timestamp, d numeric(6, 2)[]);
\copy copied FROM STDIN
1	one	2024-02-29 12:00:00	{1.50,NULL}
2	\N	\N	{}
3	tab\tand\nline	infinity	\N
\.
\copy copied (a, b) FROM STDIN WITH (FORMAT csv, HEADER, NULL 'none')
a,b
4,"quoted, with ""quotes"""
5,none
6,
\.
\copy copied TO STDOUT
\copy copied TO STDOUT WITH (FORMAT csv, HEADER)
\copy (SELECT a, upper(b) FROM copied WHERE a < 3 ORDER BY a) TO STDOUT WITH (DELIMITER '|')
\copy copied TO '/dev/null' WITH (FORMAT binary)
COPY copied (a) FROM STDIN;
7
seven
\.
COPY copied (a) FROM STDIN;
1
\.
SELECT count(*) FROM copied;

-- errors
SELEC 1;
SELECT * FROM nowhere;
SELECT nothing FROM plain;
SELECT 1 / 0;
\echo :ERROR :SQLSTATE :LAST_ERROR_SQLSTATE
\set VERBOSITY verbose
INSERT INTO copied (a) VALUES (1);
\errverbose
\set VERBOSITY default
INSERT INTO app.orders (customer) VALUES (99);
INSERT INTO app.customer (name, balance) VALUES ('Zeno', -1);
INSERT INTO app.customer (email) VALUES ('none');
SELECT 'x'::integer;
SELECT length(1, 2, 3);

-- transactions
BEGIN;
INSERT INTO copied (a) VALUES (10);
SAVEPOINT one;
INSERT INTO copied (a) VALUES (10);
SELECT 1;
ROLLBACK TO one;
INSERT INTO copied (a) VALUES (11);
COMMIT;
SELECT a FROM copied WHERE a >= 10 ORDER BY a;
\set AUTOCOMMIT off
DELETE FROM copied;
ROLLBACK;
\set AUTOCOMMIT on
\set ON_ERROR_ROLLBACK on
BEGIN;
SELECT broken;
SELECT 'goes on' AS after;
COMMIT;
\set ON_ERROR_ROLLBACK off
SELECT count(*) FROM copied;
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY;
SHOW transaction_isolation;
INSERT INTO copied (a) VALUES (12);
ROLLBACK;

-- several statements in one message
SELECT 1 AS one\; SELECT 2 AS two;
INSERT INTO copied (a) VALUES (20)\; SELECT 1 / 0;
SELECT count(*) FROM copied WHERE a = 20;

-- rows in pieces
\set FETCH_COUNT 2
SELECT a FROM copied ORDER BY a;
\unset FETCH_COUNT

-- prepared statements and settings
PREPARE find (integer) AS SELECT name FROM app.customer WHERE id = $1;
EXECUTE find(1);
EXECUTE find(3);
DEALLOCATE find;
EXECUTE find(1);
SET datestyle = 'ISO, DMY';
SHOW datestyle;
SET TIME ZONE 'Europe/Paris';
SELECT '2024-07-01 00:00:00Z'::timestamptz;
RESET ALL;
SHOW TimeZone;
SET nonsense = 1;
\if true
\echo taken
\else
\echo not taken
\endif
LISTEN news;
NOTIFY elsewhere, 'not heard here';
SELECT * FROM pg_listening_channels();
UNLISTEN *;
VACUUM plain;
ANALYZE plain;
EXPLAIN SELECT * FROM plain WHERE a = 1;
DROP TABLE copied;
\set SHOW_CONTEXT always
DROP TABLE IF EXISTS copied;
\c - reader
