//! Types and their values.

pub mod array;
pub mod binary;
pub(crate) mod bytes;
mod cast;
mod context;
pub mod datetime;
mod float;
pub mod json;
mod kind;
mod lsn;
mod modifier;
mod name;
mod network;
pub mod numeric;
mod packed;
pub mod text;
mod ty;
mod value;
pub mod wire;

pub use array::{Array, ArrayRef, Dimension};
pub(crate) use cast::out_of_range as cast_out_of_range;
pub use cast::{Cast, CastContext, implicitly};
pub use context::{Begun, EvalContext, Large, ObjectNames};
pub(crate) use context::{LARGE, extent};
pub use datetime::{Date, Formats, Interval, Time, TimeZone, Timestamp};
pub use kind::{Category, Kind};
pub use modifier::fit;
pub use network::Net;
pub(crate) use numeric::division_by_zero;
pub use numeric::{Numeric, NumericRef};
pub use packed::{Packed, PackedBytes};
pub use ty::{Precision, Type, interval_fields};
pub use value::{Value, ValueRef, without_blanks};

pub(crate) use value::compare_floats;
