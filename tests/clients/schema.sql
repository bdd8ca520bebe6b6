-- What every client finds: tables with all kinds of constraints, indexes, views, sequences, comments, grants.
CREATE ROLE reader LOGIN PASSWORD 'reader';
CREATE ROLE "Odd Role" NOLOGIN;
CREATE SCHEMA app;
CREATE TABLE app.customer (
    id serial PRIMARY KEY,
    name text NOT NULL,
    email varchar(40) UNIQUE,
    born date,
    balance numeric(12, 2) NOT NULL DEFAULT 0 CHECK (balance >= 0),
    created timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE app.orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer integer NOT NULL REFERENCES app.customer (id) ON DELETE CASCADE,
    state "char" NOT NULL DEFAULT 'n',
    tags text[],
    details jsonb
);
CREATE INDEX orders_customer ON app.orders (customer, id DESC);
CREATE TABLE app.line (
    "order" bigint NOT NULL REFERENCES app.orders (id),
    "Number" smallint NOT NULL,
    item char(8) NOT NULL,
    price numeric(8, 2),
    PRIMARY KEY ("order", "Number"),
    CONSTRAINT cheap CHECK (price < 10000)
);
CREATE VIEW app.owing AS SELECT id, name, balance FROM app.customer WHERE balance > 0;
CREATE SEQUENCE app.ticket AS integer START 100 INCREMENT 5 MINVALUE 10 MAXVALUE 1000 CYCLE CACHE 1;
COMMENT ON TABLE app.customer IS 'Those who buy';
COMMENT ON COLUMN app.customer.email IS 'Where bills go';
GRANT USAGE ON SCHEMA app TO reader;
GRANT SELECT ON app.customer TO reader;
GRANT SELECT, UPDATE ON app.orders TO reader WITH GRANT OPTION;
GRANT reader TO "Odd Role";
CREATE TABLE plain (a integer, b text);
INSERT INTO app.customer (name, email, born, balance) VALUES
    ('Ada', 'ada@example.org', '1815-12-10', 12.5), ('Blaise', NULL, '1623-06-19', 0), ('Émilie', 'e@example.org', NULL, 7);
INSERT INTO app.orders (customer, state, tags, details) VALUES
    (1, 'n', '{a,"b c",NULL}', '{"gift": true}'), (1, 'd', NULL, NULL), (3, 'n', '{}', '[1, 2]');
INSERT INTO app.line VALUES (1, 1, 'pen', 1.5), (1, 2, 'ink', 3.25), (3, 1, 'book', 20);
INSERT INTO plain VALUES (1, 'one'), (2, NULL), (3, E'tab\there');
