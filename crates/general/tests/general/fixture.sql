CREATE TABLE types (
    id int, b bool, s smallint, i int, l bigint, r real, d double precision, n numeric, p numeric(10,2),
    t text, v varchar(10), c char(5), y bytea, da date, ti time, ts timestamp, tz timestamptz, iv interval,
    u uuid, j json, jb jsonb, ia int[], ta text[], o oid, na numeric(8,3)[]
);
INSERT INTO types VALUES
    (1, true, 1, 10, 100, 1.5, 2.5, 1.50, 12.34, 'one', 'uno', 'a', '\x01ff', '2024-01-31', '10:20:30',
     '2024-01-31 10:20:30', '2024-01-31 10:20:30+00', '1 day 02:00:00', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11',
     '{"a": 1}', '{"a": 1, "b": [1, 2]}', '{1,2,3}', '{a,b}', 16384, '{1.5,2.25}'),
    (2, false, -2, -20, -200, -1.25, 0, 1.5, 0.50, 'two', 'dos', 'b', '\x', '2023-12-31', '23:59:59.5',
     '2023-12-31 23:59:59.5', '2023-12-31 23:59:59.5+02', '24:00:00', '00000000-0000-0000-0000-000000000000',
     '[1, 2]', '[]', '{}', '{}', 1259, '{}'),
    (3, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
     NULL, NULL, NULL, NULL, NULL, NULL),
    (4, true, 32767, 2147483647, 9223372036854775807, 'NaN', 'Infinity', 123456789012345678.123456, 99999999.99,
     'Ünïcödé', '', 'cc  ', '\xdeadbeef', 'infinity', '00:00:00', '-infinity', 'infinity', '1 mon',
     'ffffffff-ffff-ffff-ffff-ffffffffffff', 'null', '{"b": null, "a": 1.0}', '{{1,2},{3,4}}', '{NULL,"x y"}',
     4294967295, '{NULL}'),
    (5, false, -32768, -2147483648, -9223372036854775808, 0, '-0', 0.00, -0.01, 'one', 'tres', 'a    ', '\x00',
     '0001-01-01', '12:00:00', '1999-12-31 23:59:59.999999', '1999-12-31 23:59:59.999999+00', '-1 mon -1 day',
     'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a12', '"s"', '"s"', '[0:1]={7,8}', '{c}', 0, '{3.125}');

CREATE TABLE departments (id int, name text, boss int);
CREATE INDEX ON departments (id);
INSERT INTO departments VALUES (1, 'sales', 10), (2, 'research', 20), (3, 'nothing', NULL);

CREATE TABLE employees (id int, name text, department int, salary numeric(10,2), hired date, boss int);
CREATE INDEX ON employees (id);
INSERT INTO employees VALUES
    (10, 'Ann', 1, 5000.00, '2020-01-15', NULL),
    (11, 'Bob', 1, 4000.50, '2020-06-01', 10),
    (12, 'Cid', 1, 4000.50, '2021-03-20', 10),
    (20, 'Dee', 2, 7000.00, '2019-11-11', NULL),
    (21, 'Eve', 2, 6500.25, '2022-02-02', 20),
    (22, 'Fay', 2, NULL, '2022-02-02', 21),
    (30, 'Gus', NULL, 1000.00, NULL, 10);

CREATE TABLE orders (id bigint, customer int, placed timestamp, total numeric(12,2), state text);
INSERT INTO orders VALUES
    (1, 1, '2024-01-01 09:00:00', 10.00, 'done'),
    (2, 1, '2024-01-02 10:00:00', 20.00, 'done'),
    (3, 2, '2024-01-02 11:30:00', 30.50, 'open'),
    (4, 2, '2024-02-10 00:00:00', 5.25, 'open'),
    (5, 3, '2024-02-11 12:00:00', NULL, 'done'),
    (6, NULL, '2024-03-01 08:15:00', 99.99, 'lost');

CREATE TABLE lines (order_id bigint, number int, item text, quantity smallint, price real);
INSERT INTO lines VALUES
    (1, 1, 'apple', 2, 1.5), (1, 2, 'pear', 1, 7), (2, 1, 'apple', 10, 1.25), (2, 2, 'fig', 3, 2.5),
    (3, 1, 'pear', 4, 7.625), (4, 1, 'plum', NULL, 5.25), (7, 1, 'apple', 1, 1.5);

CREATE TABLE tree (id int, parent int, name text);
INSERT INTO tree VALUES (1, NULL, 'root'), (2, 1, 'left'), (3, 1, 'right'), (4, 2, 'leaf'), (5, 4, 'tip'), (6, 3, 'bud');

CREATE TABLE numbers (n int, m int, x numeric, f double precision);
INSERT INTO numbers VALUES
    (1, 1, 1.0, 1), (2, 1, 1.00, 1), (3, 1, 2.5, 2.5), (4, 2, 2.50, 2.5), (5, 2, -3, -3), (6, 2, NULL, NULL),
    (7, 3, 10, 10), (8, 3, 0.1, 0.1);

CREATE TABLE "Mixed Case" ("Id" int, id text, "select" bool);
INSERT INTO "Mixed Case" VALUES (1, 'x', true), (2, 'y', false);

CREATE TABLE nulls (a int, b int);
INSERT INTO nulls VALUES (1, 1), (1, NULL), (NULL, 1), (NULL, NULL), (2, 2);

CREATE TABLE nothing (a int, b text);

CREATE VIEW well_paid AS SELECT id, name, salary FROM employees WHERE salary > 4500;
CREATE VIEW per_department AS
    SELECT d.name AS department, count(e.id) AS people, sum(e.salary) AS paid
    FROM departments d LEFT JOIN employees e ON e.department = d.id GROUP BY d.name;
