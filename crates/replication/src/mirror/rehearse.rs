//! Rehearse: reads what a mirror has as a failover would, before one has to.
//!
//! A mirror's rows are read by nobody for years, and memory rots. So all that is committed is read
//! now and then: the directory, each slot with its checksum, rows elsewhere. It is read as a
//! [`FuzzySnapshot`] is, while the primary writes. What the undo ring has is looked at whenever a
//! connection ends. A mirror that fails has no vote from then on, says so, and begins again from
//! another node; its memory is kept aside until it has everything again.

use freshet_base::{Fid, Rid};

use super::{FuzzySnapshots, Shared, fuzzy_snapshot::NotRead};

/// What has come of a rehearsal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rehearsal {
    /// All of this number of records are sound.
    Sound(u64),
    /// It was not read to its end: there is nothing to read, the memory was taken back from the
    /// primary in the meantime, or the caller wants no more.
    Open,
    /// It is damaged: the mirror begins again.
    Damaged(String),
}

impl FuzzySnapshots {
    /// Reads all that the mirror has. `check` says what is wrong with a row that is there;
    /// `continues` is asked between some of them, and may take its time. Blocks.
    pub fn rehearse(
        &self,
        mut check: impl FnMut(Fid, Rid, &[u8]) -> Result<(), String>,
        mut continues: impl FnMut() -> bool,
    ) -> Rehearsal {
        let (mut records, mut wrong) = (0, None);
        let mut read = || {
            let mut fuzzy_snapshot = self.taken()?;
            for (fid, chunk) in fuzzy_snapshot.chunks().collect::<Vec<_>>() {
                if !continues() {
                    return Ok(false);
                }
                fuzzy_snapshot.visited(chunk, |rid, _, row| {
                    records += 1;
                    let checked = row.map_or(Ok(()), |row| check(fid, rid, row));
                    wrong = wrong.take().or(checked.err());
                })?;
            }
            Ok(true)
        };
        let why = match (read(), wrong) {
            (Err(NotRead::Damaged(why)), _) => why.to_string(),
            (Ok(_), Some(why)) => why,
            (Ok(true), None) => {
                self.0.rehearsed(records);
                return Rehearsal::Sound(records);
            }
            (Ok(false), None) | (Err(NotRead::Now(_)), _) => return Rehearsal::Open,
        };
        self.condemn(&why);
        Rehearsal::Damaged(why)
    }

    /// What the mirror has is not what was written: it has no vote from now on, says so, and
    /// begins again from another node. What it has is kept aside until it has everything again.
    pub fn condemn(&self, why: &str) {
        self.0.condemn(why.to_owned());
    }
}

impl Shared {
    fn rehearsed(&self, records: u64) {
        self.state().rehearsed = Some((self.clock.now(), records));
    }
}
