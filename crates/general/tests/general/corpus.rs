//! Queries whose results were recorded from PostgreSQL 15.
