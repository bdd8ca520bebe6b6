//! What is pushed down to relations, parameters, EXPLAIN.
