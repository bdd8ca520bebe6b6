-- What the comparison itself rests on: tags, states, columns, orders.
CREATE TABLE t (id int PRIMARY KEY, a numeric(6, 2), b text DEFAULT 'none');
CREATE TABLE u (id int PRIMARY KEY, a numeric);
INSERT INTO t VALUES (1, 1.5), (2, NULL), (3, 7);
INSERT INTO t SELECT n, n, n::text FROM generate_series(10, 20) AS n;
SELECT * FROM t;
SELECT a, b AS c, a + 1, count(*) OVER () FROM t ORDER BY id;
SELECT 1; SELECT 2 AS two;
SELECT nothing FROM t;
SELECT 1 / 0; SELECT 1;
BEGIN;
UPDATE t SET a = a + 1 WHERE id < 3 RETURNING *;
SELECT 1 / (id - 2) FROM t ORDER BY id;
SELECT 1;
COMMIT;
COPY t FROM STDIN;
4	\N	x;
5	2.25	y
\.
COPY (SELECT * FROM t ORDER BY id) TO STDOUT;
COPY (SELECT * FROM t ORDER BY id) TO STDOUT (FORMAT csv, HEADER);
MERGE INTO t USING u ON t.id = u.id WHEN MATCHED THEN UPDATE SET a = u.a;
DECLARE c CURSOR FOR SELECT 1;
BEGIN; DECLARE c CURSOR FOR SELECT id FROM t ORDER BY id DESC;
FETCH 2 FROM c;
FETCH ALL FROM c;
CLOSE c; COMMIT;
BEGIN; SELECT 1 / 0;
BEGIN;
START TRANSACTION READ ONLY;
SAVEPOINT s;
SELECT 1;
COMMIT;
-- What differs: see differences.txt.
CREATE TABLE made (a int, b int GENERATED ALWAYS AS (a * 2) STORED);
SELECT sum(id) OVER (ORDER BY id ROWS UNBOUNDED PRECEDING EXCLUDE CURRENT ROW) FROM t;
SELECT jsonb_path_query_first('{"a": 1}', '$.a');
SELECT '101'::bit(3);
SELECT '25:00'::date;
INSERT INTO t VALUES (4) ON CONFLICT (id) DO UPDATE SET a = (SELECT max(u.a) FROM u WHERE u.id = excluded.id);
DELETE FROM t;
TABLE t;
DROP TABLE t, u;
;
