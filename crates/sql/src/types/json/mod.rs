//! JSON: checked, put into canonical form, and taken apart.
//!
//! A `json` value is its text, kept as written. A `jsonb` value is canonical text: members sorted
//! by length and bytes of their keys, the last of those with equal keys kept, numbers written out,
//! one blank after `:` and `,`. Members and elements are found by scanning that text; nothing is
//! unpacked that is not asked for.

mod access;
mod canonical;
mod scan;
mod tree;

pub use access::{Member, Step, Walk, elements, get, members, path, scalar_text, type_name};
pub use canonical::canonical;
pub use scan::check;
pub use tree::{Json, Parsed, write_string};

/// How deep arrays and objects may be nested.
pub const MAX_DEPTH: usize = 1000;
