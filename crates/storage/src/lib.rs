//! Main-memory storage: tables as indirection arrays of version chains,
//! ordered indexes from keys to record ids, and reclamation of both while
//! readers run.
//!
//! The log is the database (Query Fresh, section 1.2): what lives here is a
//! cache of it that knows where everything is.

mod array;
mod catalog;
mod definition;
pub mod identity;
pub mod index;
mod keep;
mod leaves;
mod owner;
pub mod reclaim;
mod table;
mod version;

pub use array::{IndirectionArray, Word};
pub use catalog::{Catalog, CatalogError, Known};
pub use definition::{
    DefinitionError, IndexDefinition, IndexState, KeyBuffer, KeyEncoding, KeyPart, RowTest, TableDefinition,
};
pub use keep::Kept;
pub use leaves::LeafSet;
pub use owner::{Owner, Owners, Phase};
pub use reclaim::{Guard, Held, Participant, Participants, Pin};
pub use table::{
    Announcement, Change, Content, Damage, Examined, Index, IndexList, InstallError, Installed, Instantiated,
    LoadError, Loaded, Lockable, Newest, Published, ReadContext, ReadError, Reclaimed, RecordSource, Table, Visible,
};
