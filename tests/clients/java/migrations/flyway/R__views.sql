CREATE OR REPLACE VIEW spent AS SELECT c.name, sum(o.total) AS total FROM customer c LEFT JOIN orders o ON o.customer = c.id GROUP BY c.name;
