CREATE TABLE orders (
    id serial PRIMARY KEY,
    customer bigint NOT NULL REFERENCES customer ON DELETE CASCADE,
    total numeric(10, 2) CHECK (total >= 0)
);
COMMENT ON TABLE orders IS 'what was bought';
