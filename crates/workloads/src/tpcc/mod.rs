//! TPC-C, standard specification, revision 5.11.
pub mod input;
pub mod keys;
pub mod outcome;
pub mod population;
pub mod rows;
pub mod text;
