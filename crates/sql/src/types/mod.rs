//! Types and their values.

pub mod array;
pub mod binary;
mod bytes;
mod cast;
mod context;
pub mod datetime;
mod float;
pub mod json;
mod kind;
mod modifier;
mod name;
pub mod numeric;
pub mod text;
mod ty;
mod value;
pub mod wire;

pub use array::{Array, ArrayRef, Dimension};
pub use cast::{Cast, CastContext, implicitly};
pub use context::{EvalContext, ObjectNames};
pub use datetime::{Date, Interval, Time, TimeZone, Timestamp};
pub use kind::{Category, Kind};
pub use modifier::fit;
pub use numeric::Numeric;
pub use ty::{Precision, Type, interval_fields};
pub use value::{Value, ValueRef, without_blanks};

pub(crate) use value::compare_floats;
