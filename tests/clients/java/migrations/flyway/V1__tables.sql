CREATE TABLE customer (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name varchar(60) NOT NULL,
    email text UNIQUE,
    made timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX customer_name ON customer (lower(name));
INSERT INTO customer (name) VALUES ('Ada'), ('${second}');
