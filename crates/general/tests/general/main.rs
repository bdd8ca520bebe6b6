//! Queries over tables in memory.

mod corpus;
mod limits;
mod plans;
mod reading;
mod support;
mod values;
