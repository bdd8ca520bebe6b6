//! Words that every other crate uses: LSNs, identifiers, watermarks, and the
//! facade over the standard library's (or loom's) concurrency primitives.
#![forbid(unsafe_code)]

pub mod clock;
pub mod cpu;
mod gate;
mod ids;
pub mod listen;
mod lock;
pub mod memory;
pub mod names;
pub mod panics;
pub mod private;
mod proof;
mod regularly;
mod row_lock;
mod run_directory;
pub mod safety;
pub mod stage;
pub mod strangers;
pub mod sync;
pub mod value_ring;
pub mod varint;
pub mod versions;
pub mod wait;
mod watermark;
pub mod words;

pub use gate::{CommitGate, NotAdmitted, OutcomeOpen};
pub use ids::{ClusterId, Fid, IdHasher, Lsn, NoNodeId, NodeId, RecordKind, Rid, Term};
pub use lock::lock;
pub use proof::StateProof;
pub use regularly::{Regularly, Stops};
pub use row_lock::RowLock;
pub use run_directory::run_directory;
pub use safety::{Certifier, Consent, Isolation, Safety};
pub use stage::Stage;
pub use wait::WaitError;
pub use watermark::{Watermark, check};
