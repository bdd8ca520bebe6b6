-- What a database does that was loaded: defaults, identities, sequences and constraints. It is changed by that.
\pset format unaligned
\pset tuples_only on
\set VERBOSITY sqlstate
SET TimeZone = 'UTC';
BEGIN;
INSERT INTO app.parent DEFAULT VALUES RETURNING *;
INSERT INTO app.child DEFAULT VALUES RETURNING *;
SELECT nextval('app.s');
SAVEPOINT s;
INSERT INTO app.child ("Odd Name") VALUES (1001);
ROLLBACK TO s;
INSERT INTO app.parent (price) VALUES (0);
ROLLBACK TO s;
INSERT INTO app.child (parent) VALUES (100000);
ROLLBACK TO s;
INSERT INTO app.parent (code) VALUES ('c1');
ROLLBACK;
