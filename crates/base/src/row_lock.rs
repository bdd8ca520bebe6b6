//! How strongly records are locked.

/// How strongly a record is locked, the weakest first. A transaction that holds a stronger lock
/// needs no weaker one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RowLock {
    /// FOR KEY SHARE: the record stays, and keeps its keys.
    KeyShare,
    /// FOR SHARE: it stays as it is.
    Share,
    /// FOR NO KEY UPDATE: as a change that leaves the keys as they are.
    NoKeyUpdate,
    /// FOR UPDATE: as a deletion.
    Update,
}

impl RowLock {
    /// All of them, the weakest first.
    pub const ALL: [Self; 4] = [Self::KeyShare, Self::Share, Self::NoKeyUpdate, Self::Update];

    /// Whether two transactions cannot hold these on one record.
    pub const fn conflicts_with(self, other: Self) -> bool {
        // The strongest conflicts with all, each weaker one with one less.
        self as u8 + other as u8 >= Self::Update as u8
    }
}
