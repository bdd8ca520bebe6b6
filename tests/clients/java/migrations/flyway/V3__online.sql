CREATE INDEX CONCURRENTLY orders_customer ON orders (customer);
