-- What was reported of wrong rows of the query library, by the number of the report there. Whatever
-- is open in the version that is used, and much that is closed.
CREATE TABLE t1 (id int, z int);
CREATE TABLE t2 (id int, z int);
CREATE TABLE o (x int NOT NULL);
CREATE TABLE i (id int NOT NULL);
CREATE TABLE empty (id int NOT NULL);
INSERT INTO t1 VALUES (1, 10), (2, 20), (NULL, 30), (4, 40);
INSERT INTO t2 VALUES (1, 10), (NULL, 20), (3, 5), (4, 50);
INSERT INTO o VALUES (1), (2);
INSERT INTO i VALUES (1), (3);
-- 25336: correlated NOT IN by another comparison than equality
SELECT id FROM t1 WHERE id NOT IN (SELECT id FROM t2 WHERE t2.z > t1.z);
SELECT id FROM t1 WHERE id NOT IN (SELECT id FROM t2 WHERE t2.z < t1.z);
SELECT id FROM t1 WHERE id NOT IN (SELECT id FROM t2 WHERE t2.z > t1.z) OR z = 20;
SELECT id FROM t1 WHERE id IN (SELECT id FROM t2 WHERE t2.z > t1.z) OR z = 20;
-- 25347: correlated NOT IN and nulls
SELECT id FROM t1 WHERE 3 NOT IN (SELECT id FROM t2 WHERE t2.z = t1.z);
SELECT id FROM t1 WHERE id NOT IN (SELECT id FROM t2 WHERE t2.z = t1.z);
SELECT id FROM t1 WHERE NOT (id IN (SELECT id FROM t2 WHERE t2.z = t1.z));
SELECT id, id NOT IN (SELECT id FROM t2 WHERE t2.z = t1.z) FROM t1;
SELECT id FROM t1 WHERE (id NOT IN (SELECT id FROM t2 WHERE t2.z = t1.z)) IS NULL;
-- 25340: a constant NOT IN
SELECT id FROM t1 WHERE 3 NOT IN (SELECT id FROM t2);
SELECT id FROM t1 WHERE 5 NOT IN (SELECT id FROM t2);
SELECT id FROM t1 WHERE NOT (5 IN (SELECT id FROM t2));
SELECT id FROM t1 WHERE 5 NOT IN (SELECT id FROM t2) OR id = 1;
SELECT id FROM t1 WHERE (5 NOT IN (SELECT id FROM t2)) IS NULL;
SELECT 5 NOT IN (SELECT id FROM t2) AS r;
-- 25473: NULL NOT IN
SELECT x FROM o WHERE CAST(NULL AS int) NOT IN (SELECT id FROM i);
SELECT x FROM o WHERE NULL NOT IN (SELECT id FROM i);
SELECT x FROM o WHERE nullif(1, 1) NOT IN (SELECT id FROM i);
SELECT x FROM o WHERE CAST(NULL AS int) NOT IN (SELECT id FROM i) OR x = 99;
SELECT x FROM o WHERE NOT (CAST(NULL AS int) NOT IN (SELECT id FROM i));
SELECT x FROM o WHERE CAST(NULL AS int) NOT IN (SELECT id FROM empty);
SELECT x FROM o WHERE nullif(x, 1) NOT IN (SELECT id FROM i);
-- 23410, 23103, 23126, 23847: NOT IN beside another condition
SELECT id FROM t1 WHERE id <> 1 AND id NOT IN (SELECT id FROM t2);
SELECT id FROM t1 WHERE id <> 1 AND id NOT IN (SELECT id FROM t2 WHERE id IS NULL);
SELECT id FROM t1 WHERE id <> 1 AND id NOT IN (SELECT id FROM t2 WHERE id IS NOT NULL);
SELECT id FROM t1 WHERE id NOT IN (SELECT id FROM empty);
SELECT id FROM t1 WHERE id IS NULL AND id NOT IN (SELECT id FROM i);
-- 24854: semi and anti joins by keys that occur twice, and nulls
WITH l (k, v) AS (VALUES (1, 10), (2, 20), (3, 30), (4, 40), (CAST(NULL AS int), 50)), r (k) AS (VALUES (1), (2), (2), (CAST(NULL AS int))) SELECT l.k, l.v FROM l WHERE EXISTS (SELECT 1 FROM r WHERE r.k = l.k) OR l.v > 30;
WITH l (k, v) AS (VALUES (1, 10), (2, 20), (3, 30), (4, 40), (CAST(NULL AS int), 50)), r (k) AS (VALUES (1), (2), (2), (CAST(NULL AS int))) SELECT l.k, l.v FROM l WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.k = l.k);
WITH l (k, v) AS (VALUES (1, 10), (2, 20), (3, 30), (4, 40), (CAST(NULL AS int), 50)), r (k) AS (VALUES (1), (2), (2), (CAST(NULL AS int))) SELECT l.k, l.v, l.k IN (SELECT k FROM r) FROM l;
-- 11704: a condition on the side that may be missing
CREATE TABLE a (v0 bigint, v1 text);
CREATE TABLE b (v0 boolean, v1 bigint);
CREATE TABLE c (v0 text, v1 boolean);
INSERT INTO a VALUES (NULL, '1381560824');
INSERT INTO b VALUES (NULL, 1381560824), (true, NULL);
INSERT INTO c VALUES (NULL, false);
SELECT * FROM a CROSS JOIN b LEFT JOIN c ON a.v0 = b.v1 WHERE c.v1 < b.v0;
SELECT * FROM a CROSS JOIN b LEFT JOIN c ON a.v0 = b.v1;
SELECT * FROM (SELECT a.v0 AS x, b.v1 AS y FROM a CROSS JOIN b) AS j WHERE x = y AND x + y IS NULL;
-- 13211, 1321: conditions above an outer join
SELECT * FROM t1 LEFT JOIN t2 ON t1.id = t2.id WHERE abs(t2.z) > 5;
SELECT * FROM t1 LEFT JOIN t2 ON t1.id = t2.id WHERE t2.z IS NULL;
SELECT * FROM t1 LEFT JOIN t2 ON t1.id = t2.id WHERE coalesce(t2.z, 0) < 20;
SELECT * FROM t1 LEFT JOIN t2 ON t1.id = t2.id WHERE NOT (t2.z > 5 AND t1.z > 5);
SELECT * FROM t1 FULL JOIN t2 ON t1.id = t2.id WHERE t1.z > 5 OR t2.z > 5;
SELECT * FROM t1 LEFT JOIN t2 ON t1.id = t2.id AND t1.z > 10;
SELECT * FROM t1 FULL JOIN t2 ON t1.id = t2.id AND t1.z < t2.z + 1;
-- 21660: a full join whose condition is unknown
SELECT * FROM t1 FULL JOIN t2 ON t1.z = t2.z AND t1.id < t2.id + 1;
-- 14335: LIMIT above a full join
SELECT count(*) FROM (SELECT * FROM t1 FULL JOIN t2 ON t1.z = t2.z LIMIT 2) AS j;
SELECT count(*) FROM (SELECT * FROM t1 FULL JOIN t2 ON t1.id = t2.id AND t1.id IS NOT NULL LIMIT 9) AS j WHERE j.z IS NULL;
-- 12570, 16965, 11291: grouping sets
SELECT id, min(z), grouping(id) FROM t1 GROUP BY CUBE (id);
SELECT v FROM (SELECT 'v' AS v UNION ALL SELECT 'v' ORDER BY v) AS u GROUP BY GROUPING SETS ((v), ());
SELECT one, id, z, count(*) FROM (SELECT 1 AS one, * FROM t1) AS u GROUP BY GROUPING SETS ((one), (id), (z));
-- 23440: groups of nulls, the largest first
SELECT m FROM (SELECT z, max(id) AS m FROM t1 WHERE id IS NULL GROUP BY z) AS g ORDER BY m DESC NULLS FIRST LIMIT 3;
SELECT m FROM (SELECT z, max(id) AS m FROM t1 GROUP BY z) AS g ORDER BY m DESC NULLS LAST LIMIT 2;
-- 22068: FILTER that is unknown
SELECT count(*) FILTER (WHERE id > 1), sum(z) FILTER (WHERE id > 1), avg(z) FILTER (WHERE id > NULL) FROM t1;
SELECT z, count(*) FILTER (WHERE id > 1), min(z) FILTER (WHERE NULL) FROM t1 GROUP BY z;
-- 20244: groups by what breaks an order
SELECT z / 20, z % 20, sum(id) FROM (SELECT * FROM t1 ORDER BY z) AS s GROUP BY z / 20, z % 20 ORDER BY 1, 2;
-- 4844, 6744, 7549: joins of three by more than equality
SELECT t1.id, t2.id, i.id FROM t1 JOIN t2 ON t1.id > t2.id CROSS JOIN i WHERE i.id > t1.z / 20 AND t1.z > t2.z;
SELECT t1.id, t2.z, i.id FROM t1 JOIN t2 ON t1.id = t2.id JOIN i ON i.id = t2.id WHERE 1 = 1 AND i.id = 1;
SELECT t1.id, t2.z, i.id FROM t1 JOIN t2 ON t1.id = t2.id JOIN i ON i.id = t2.id WHERE i.id = 7;
SELECT * FROM t1, t2, i WHERE (t1.id = t2.id AND t2.id = i.id) OR (t1.id = t2.id AND t2.z = 50);
SELECT * FROM t1, t2, i WHERE (t1.id = i.id AND t2.z = 5) OR (t1.id = t2.id AND t1.id = i.id);
-- 10413: columns called as expressions
SELECT "a + b", a + b AS s FROM (SELECT 1 AS a, 2 AS b, 7 AS "a + b") AS u;
SELECT "max(z)", max(z) FROM (SELECT z, 7 AS "max(z)" FROM t1) AS u GROUP BY "max(z)";
-- 5218: an empty part of a union
SELECT * FROM i WHERE false IS UNKNOWN UNION ALL SELECT * FROM i WHERE NOT false IS UNKNOWN UNION ALL SELECT * FROM i WHERE false IS UNKNOWN IS NULL;
SELECT * FROM t1 LEFT JOIN (SELECT * FROM t2 WHERE false) AS n ON t1.id = n.id;
SELECT * FROM (SELECT * FROM t1 WHERE false) AS n RIGHT JOIN t2 ON t2.id = n.id;
SELECT * FROM (SELECT * FROM t1 WHERE false) AS n FULL JOIN t2 ON t2.id = n.id WHERE n.z IS NULL;
-- AND and OR evaluate their right side for no other rows than they have to.
SELECT id FROM t1 WHERE z <> 10 AND 100 / (z - 10) > 3;
SELECT id FROM t1 WHERE z = 10 OR 100 / (z - 10) > 3;
SELECT u.id FROM t1 AS u JOIN t2 ON u.id = t2.id WHERE u.z <> 10 AND 100 / (u.z - 10) > t2.id;
SELECT u.id, u.z = 10 OR 100 / (u.z - 10) > 3 AS k FROM t1 AS u LEFT JOIN t2 ON u.id = t2.id;
SELECT sum(100 / (z - 10)) FILTER (WHERE z <> 10) FROM t1;
SELECT z > 10, sum(100 / (z - 10)) FILTER (WHERE z <> 10) FROM t1 GROUP BY z > 10;
