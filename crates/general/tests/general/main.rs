//! Queries over tables in memory.

mod corpus;
mod limits;
mod plans;
mod support;
mod values;
