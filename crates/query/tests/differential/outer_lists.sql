-- Lists of IN that name a column from outside of the subquery.
SELECT a, (SELECT a IN (b, 3)) FROM (VALUES (1, 1), (2, 2), (3, 9)) AS p (a, b);
SELECT * FROM (VALUES (1, 1), (2, 2), (3, 9)) AS p (a, b), LATERAL (SELECT 1 WHERE a IN (b, 3)) AS l;
CREATE TABLE r (z int PRIMARY KEY);
INSERT INTO r VALUES (10), (11);
SELECT a, (SELECT count(*) FROM r WHERE z NOT IN (a, 10)) FROM (VALUES (10), (11), (5)) AS p (a);
SELECT a, (SELECT count(*) FROM r WHERE z = ANY (ARRAY[a, 10])) FROM (VALUES (10), (11), (5)) AS p (a);
CREATE TABLE pp (a int, b int);
INSERT INTO pp VALUES (1, 1), (2, 2), (3, 4), (5, 3), (NULL, 5);
DELETE FROM pp WHERE (SELECT count(*) FROM r WHERE a IN (b, 3)) = 0;
SELECT * FROM pp ORDER BY a;
-- Equalities beside keys that compare nulls.
CREATE TABLE a (i int, x int, y int);
CREATE TABLE b (j int, x int, y int);
INSERT INTO a VALUES (1, NULL, NULL), (2, 1, 1), (3, NULL, 1);
INSERT INTO b SELECT * FROM a;
CREATE TABLE c AS SELECT * FROM a;
SELECT * FROM a JOIN b ON a.x IS NOT DISTINCT FROM b.x WHERE a.y = b.y;
SELECT * FROM a CROSS JOIN b JOIN c ON c.x IS NOT DISTINCT FROM b.x WHERE a.y = b.y;
SELECT * FROM a JOIN b ON a.x IS NOT DISTINCT FROM b.x AND a.y = b.y;
SELECT * FROM a JOIN b ON a.y = b.y WHERE a.x IS NOT DISTINCT FROM b.x;
SELECT * FROM a LEFT JOIN b ON a.x IS NOT DISTINCT FROM b.x AND a.y = b.y;
SELECT * FROM a JOIN b ON a.x IS NOT DISTINCT FROM b.x JOIN c ON c.y = b.y WHERE c.x = a.x OR c.i = 1;
-- What is volatile and made of constants is sorted by.
CREATE TABLE t (id int PRIMARY KEY, g int);
INSERT INTO t SELECT i, i % 3 FROM generate_series(1, 20) AS i;
CREATE SEQUENCE s;
SELECT id, nextval('s') AS n FROM t ORDER BY n DESC LIMIT 3;
SELECT setval('s', 1);
SELECT array_agg(n) FROM (SELECT nextval('s') AS n FROM t ORDER BY n DESC LIMIT 3) AS q;
SELECT setval('s', 1);
SELECT id, -nextval('s') AS n FROM t ORDER BY n, id LIMIT 3;
