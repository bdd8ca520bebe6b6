//! Reading the log in a directory that another process may own: nothing is changed, and only what
//! is durable is read.

use std::{path::Path, sync::Arc};

use freshet_base::Lsn;

use crate::{
    medium::{FileMedium, Medium},
    scan::LogSource,
    segments::{SegmentStore, StoreError},
};

/// The durable part of a log.
pub struct Durable {
    /// Reads it.
    pub log: Box<dyn LogSource>,
    /// It begins here or later: a log that was joined begins within its first segment.
    pub begin: Lsn,
    /// Where it ends.
    pub end: Lsn,
}

/// Opens the log of one stream in `directory` for reading; none when there is none.
///
/// # Errors
/// [`StoreError`] when what is there cannot be read.
pub fn read_durable(directory: &Path) -> Result<Option<Durable>, StoreError> {
    let medium: Arc<dyn Medium> = Arc::new(FileMedium::new(directory));
    let store = SegmentStore::look(&medium)?;
    let Some((begin, _)) = store.extent() else { return Ok(None) };
    let noted = store.watermark();
    // What lies above a persistent epoch counts only once the next one is there.
    let end = store.persistent_epoch()?.map_or(noted, |persistent| persistent.end.min(noted));
    Ok(Some(Durable { log: Box::new(store), begin, end }))
}
