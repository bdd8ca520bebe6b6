//! The catalog: which tables there are.
//!
//! Tables are described by the records of a table, the catalog table, whose
//! record ids are their file ids (Query Fresh, section 3.3: "FIDs are maintained
//! in exactly the same way as RIDs"). So DDL is a transaction, logged and replayed like any other.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use freshet_base::{Fid, Rid};

use crate::{
    definition::{DefinitionError, IndexDefinition, KeyPart, TableDefinition},
    table::Table,
};

/// The name of the catalog table.
const CATALOG: &str = "freshet_catalog";

/// Bytes of a table's name in its catalog row.
const NAME: usize = 64;

/// Why a table did not enter the catalog.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CatalogError {
    /// There is one of that name.
    Exists(String),
    /// There are as many as there can be.
    Full,
    /// The name is longer than 64 bytes or holds a zero byte.
    Name(String),
    /// The definition makes no table.
    Definition(DefinitionError),
    /// A catalog row from the log is none.
    Row {
        /// Of which table.
        fid: Fid,
        /// What is wrong with it.
        what: String,
    },
}

impl fmt::Display for CatalogError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exists(name) => write!(f, "there is a table {name:?} already"),
            Self::Full => write!(f, "there are {} tables already, as many as there can be", Catalog::LIMIT),
            Self::Name(name) => write!(f, "{name:?} is no table name: at most {NAME} bytes, none of them zero"),
            Self::Definition(cause) => cause.fmt(f),
            Self::Row { fid, what } => write!(
                f,
                "the catalog row of table {} cannot be understood: {what}; it was written by another version",
                fid.0
            ),
        }
    }
}

impl std::error::Error for CatalogError {}

/// All tables, by id and by name. They are never dropped, so references to them stay good.
pub struct Catalog {
    tables: Box<[OnceLock<Arc<Table>>]>,
    names: RwLock<HashMap<String, Fid>>,
    /// Whether tables that enter from now on look at what replay announces.
    consult_replay: AtomicBool,
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|table| &table.definition().name)).finish()
    }
}

impl Catalog {
    /// How many tables there can be.
    pub const LIMIT: usize = 4096;

    /// A catalog with only the catalog table in it.
    pub fn new() -> Self {
        let catalog = Self {
            tables: (0..Self::LIMIT).map(|_| OnceLock::new()).collect(),
            names: RwLock::new(HashMap::new()),
            consult_replay: AtomicBool::new(false),
        };
        let name = IndexDefinition::new("freshet_catalog_name", true, &[KeyPart::bytes(0, NAME as u16)]);
        let definition = TableDefinition::new(CATALOG, vec![name]);
        catalog.enter(Fid::CATALOG, definition).expect("the catalog is empty");
        // Record zero would be the catalog itself: it describes the others only.
        catalog
    }

    /// The table with this id.
    #[inline]
    pub fn get(&self, fid: Fid) -> Option<&Arc<Table>> {
        self.tables.get(fid.0 as usize)?.get()
    }

    /// The table of this name.
    pub fn by_name(&self, name: &str) -> Option<&Arc<Table>> {
        let fid = *self.names.read().unwrap_or_else(PoisonError::into_inner).get(name)?;
        self.get(fid)
    }

    /// All tables, the catalog table first.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.tables.iter().filter_map(OnceLock::get)
    }

    /// The table of the catalog.
    pub fn table(&self) -> &Arc<Table> {
        self.get(Fid::CATALOG).expect("made with the catalog")
    }

    /// This node is a standby: readers of all tables, now and later, look at what replay announces.
    pub fn consult_replay(&self) {
        // Under the lock, so that no table enters between the two steps.
        let _names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        self.consult_replay.store(true, Ordering::SeqCst);
        self.iter().for_each(|table| table.consult_replay());
    }

    /// Adds a table. Does nothing when just this one is there already (replay is idempotent).
    ///
    /// # Errors
    /// See [`CatalogError`].
    pub fn enter(&self, fid: Fid, definition: TableDefinition) -> Result<&Arc<Table>, CatalogError> {
        let place = self.tables.get(fid.0 as usize).ok_or(CatalogError::Full)?;
        let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = place.get() {
            return if *there.definition() == definition {
                Ok(there)
            } else {
                Err(CatalogError::Exists(definition.name))
            };
        }
        if names.contains_key(&definition.name) {
            return Err(CatalogError::Exists(definition.name));
        }
        let name = definition.name.clone();
        let table = Table::new(fid, definition).map_err(CatalogError::Definition)?;
        if self.consult_replay.load(Ordering::SeqCst) {
            table.consult_replay();
        }
        names.insert(name, fid);
        Ok(place.get_or_init(|| Arc::new(table)))
    }

    /// The catalog row of a table.
    ///
    /// # Errors
    /// [`CatalogError::Name`] or [`CatalogError::Definition`].
    pub fn row_of(definition: &TableDefinition) -> Result<Vec<u8>, CatalogError> {
        definition.validate().map_err(CatalogError::Definition)?;
        let name = definition.name.as_bytes();
        if name.len() > NAME || name.contains(&0) {
            return Err(CatalogError::Name(definition.name.clone()));
        }
        let mut row = vec![0; NAME];
        row[..name.len()].copy_from_slice(name);
        postcard::to_extend(definition, row)
            .map_err(|cause| CatalogError::Row { fid: Fid::CATALOG, what: cause.to_string() })
    }

    /// Whether `row` is just what [`Catalog::row_of`] makes of some definition but the catalog's own, so that nothing
    /// but its name and its record id can keep it from [entering](Catalog::enter_row).
    pub fn describes_table(row: &[u8]) -> bool {
        let definition =
            row.get(NAME..).and_then(|definition| postcard::from_bytes::<TableDefinition>(definition).ok());
        definition.is_some_and(|definition| {
            definition.name != CATALOG && Self::row_of(&definition).is_ok_and(|canonical| canonical == row)
        })
    }

    /// Adds the table that a catalog row, committed as record `rid` of the catalog, describes.
    ///
    /// # Errors
    /// See [`CatalogError`].
    pub fn enter_row(&self, rid: Rid, row: &[u8]) -> Result<&Arc<Table>, CatalogError> {
        let fid = Self::fid_of(rid).ok_or(CatalogError::Full)?;
        let wrong = |what: String| CatalogError::Row { fid, what };
        let definition = row.get(NAME..).ok_or_else(|| wrong("it is too short".into()))?;
        self.enter(fid, postcard::from_bytes(definition).map_err(|cause| wrong(cause.to_string()))?)
    }

    /// The id of the table that record `rid` of the catalog describes. The catalog's own is not among them.
    pub fn fid_of(rid: Rid) -> Option<Fid> {
        u32::try_from(rid.0 + 1).ok().filter(|fid| (*fid as usize) < Self::LIMIT).map(Fid)
    }
}

impl Default for Catalog {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_survives_its_catalog_row() {
        let definition = TableDefinition::new(
            "stock",
            vec![IndexDefinition::new("stock_key", true, &[KeyPart::unsigned(0, 4), KeyPart::signed(4, 4)])],
        );
        let row = Catalog::row_of(&definition).unwrap();
        let catalog = Catalog::new();
        let table = catalog.enter_row(Rid(0), &row).unwrap();
        assert_eq!((table.fid(), table.definition()), (Fid(1), &definition));
        catalog.enter_row(Rid(0), &row).expect("replay is idempotent");
        assert_eq!(catalog.enter_row(Rid(1), &row).unwrap_err(), CatalogError::Exists("stock".into()));
        assert_eq!(catalog.by_name("stock").unwrap().fid(), Fid(1));
        assert_eq!(catalog.iter().count(), 2);
        assert!(Catalog::describes_table(&row));
        assert!(!Catalog::describes_table(&[&row[..], &[0]].concat()), "nothing behind it");
        let itself = TableDefinition::new("freshet_catalog", definition.indexes.clone());
        assert!(!Catalog::describes_table(&Catalog::row_of(&itself).unwrap()));
        for length in 0..row.len() {
            // Never a panic, whatever comes out of a log.
            assert!(!Catalog::describes_table(&row[..length]));
            let _ = Catalog::new().enter_row(Rid(0), &row[..length]);
        }
        assert_eq!(catalog.enter_row(Rid(1 << 40), &row).unwrap_err(), CatalogError::Full);
    }

    #[test]
    fn names_fit_their_column() {
        let mut definition =
            TableDefinition::new(&"n".repeat(65), vec![IndexDefinition::new("k", true, &[KeyPart::unsigned(0, 4)])]);
        assert!(matches!(Catalog::row_of(&definition), Err(CatalogError::Name(_))));
        definition.name = "a\0b".into();
        assert!(matches!(Catalog::row_of(&definition), Err(CatalogError::Name(_))));
    }
}
