-- A standby serves readers, and refuses writers.
\pset null (null)
SELECT pg_is_in_recovery();
SELECT id, name, email, born, balance FROM app.customer ORDER BY id \gx
SELECT o.id, c.name, count(l."Number") AS lines FROM app.orders o JOIN app.customer c ON c.id = o.customer
    LEFT JOIN app.line l ON l."order" = o.id GROUP BY o.id, c.name ORDER BY o.id;
\copy plain TO STDOUT WITH (FORMAT csv)
INSERT INTO plain VALUES (9, 'nine');
CREATE TABLE other (a integer);
SELECT nextval('app.ticket');
BEGIN;
SELECT count(*) FROM plain;
UPDATE plain SET b = 'x';
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT a FROM plain ORDER BY a FOR UPDATE;
ROLLBACK;
SHOW transaction_read_only;
COPY plain FROM STDIN;
