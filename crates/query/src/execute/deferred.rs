//! Constraints that are checked later: at the end of a statement, or of its transaction.
//!
//! A unique constraint that is DEFERRABLE has an index that takes equal keys. The writer of a row
//! looks afterwards whether another one has its key ([`Transaction::check_key`]): at the end of the
//! statement, or, if the constraint is deferred then, when the transaction commits or SET
//! CONSTRAINTS says so. So it is with references. What is to be looked at is kept as a list of
//! records: a record that is gone by then needs no check.
//!
//! [`Transaction::check_key`]: freshet_engine::Transaction::check_key

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    sync::Arc,
};

use freshet_engine::{NotRecorded, Rid, WriteError};
use freshet_sql::{
    SqlError, SqlState, Value,
    locking::WhenLocked,
    memory::{Pool, Reservation},
};

use super::{Run, referential::values, write::Written};
use crate::{
    error::{read_error, write_error},
    schema::{Deferral, ForeignKey, Oid, Schema, Table, TableInfo},
};

/// Something that a transaction has yet to look at.
#[derive(Clone, Debug)]
pub struct Check {
    /// The oid of the constraint.
    pub constraint: Oid,
    /// How the constraint was declared.
    pub deferral: Deferral,
    /// What has to be looked at.
    pub what: What,
}

/// What a check is about.
#[derive(Clone, Debug)]
pub enum What {
    /// No other row has the key of this one.
    Unique {
        /// The oid of the table.
        table: Oid,
        /// The record whose key must be unique.
        rid: Rid,
    },
    /// The row that this one refers to is there.
    Child {
        /// The oid of the referring table.
        table: Oid,
        /// The record that refers to another one.
        rid: Rid,
    },
    /// No row refers to a row that had this key, and is gone.
    Parent {
        /// The table of those that refer.
        child: Oid,
        /// The key that was given up.
        was: Vec<Value>,
    },
}

/// Which constraints are deferred, as SET CONSTRAINTS has said.
#[derive(Clone, Debug, Default)]
struct Modes {
    all: Option<bool>,
    named: HashMap<Oid, bool>,
}

/// What a transaction has yet to look at.
#[derive(Debug, Default)]
pub struct Deferred {
    modes: RefCell<Option<Rc<Modes>>>,
    /// Each with the round in which it was done.
    checks: RefCell<Vec<(Check, Option<u32>)>>,
    /// The place of the last check of a constraint about a row that refers to another.
    children: RefCell<HashMap<(Oid, Rid), usize>>,
    open: Cell<usize>,
    round: Cell<u32>,
    kept: RefCell<Option<Reservation>>,
}

/// Where a transaction's checks were, to go [back to](Deferred::back_to).
#[derive(Clone, Debug)]
pub struct DeferredMark {
    checks: usize,
    round: u32,
    modes: Option<Rc<Modes>>,
}

impl Deferred {
    /// Whether there is nothing left to look at.
    pub fn is_empty(&self) -> bool {
        self.open.get() == 0
    }

    /// Whether a constraint is deferred now.
    pub fn defers(&self, constraint: Oid, deferral: Deferral) -> bool {
        let modes = self.modes.borrow();
        let mode = modes.as_ref().and_then(|modes| modes.named.get(&constraint).copied().or(modes.all));
        deferral != Deferral::Never && mode.unwrap_or(deferral == Deferral::Deferred)
    }

    /// SET CONSTRAINTS ALL
    pub fn set_all(&self, deferred: bool) {
        *self.modes.borrow_mut() = Some(Rc::new(Modes { all: Some(deferred), named: HashMap::new() }));
    }

    /// SET CONSTRAINTS of one.
    pub fn set(&self, constraint: Oid, deferred: bool) {
        let mut modes = self.modes.borrow_mut();
        Rc::make_mut(modes.get_or_insert_default()).named.insert(constraint, deferred);
    }

    /// Remembers something to look at, in memory of this pool.
    ///
    /// # Errors
    /// 53200.
    pub fn push(&self, check: Check, memory: &Arc<Pool>) -> Result<(), SqlError> {
        let mut kept = self.kept.borrow_mut();
        let kept = kept.get_or_insert_with(|| memory.reserve());
        kept.take(size_of::<(Check, Option<u32>)>())?;
        let mut checks = self.checks.borrow_mut();
        match &check.what {
            What::Unique { .. } => {}
            What::Child { rid, .. } => {
                kept.take(2 * size_of::<((Oid, Rid), usize)>())?;
                self.children.borrow_mut().insert((check.constraint, *rid), checks.len());
            }
            What::Parent { was, .. } => kept.take_values(was)?,
        }
        checks.push((check, None));
        self.open.set(self.open.get() + 1);
        Ok(())
    }

    /// Whether the row's foreign key is still unchecked.
    pub fn has_child(&self, constraint: Oid, rid: Rid) -> bool {
        let place = self.children.borrow().get(&(constraint, rid)).copied();
        // All checks of a constraint are done at once.
        place.is_some_and(|place| self.checks.borrow()[place].1.is_none())
    }

    /// What is left to look at of constraints that are not deferred, or of all; it counts as done.
    pub fn take(&self, all: bool) -> Vec<Check> {
        let mut taken = Vec::new();
        let round = self.round.get();
        for (check, done) in &mut *self.checks.borrow_mut() {
            if done.is_none() && (all || !self.defers(check.constraint, check.deferral)) {
                *done = Some(round);
                taken.push(check.clone());
            }
        }
        self.open.set(self.open.get() - taken.len());
        taken
    }

    /// Where it is. What is done from now on is not done once it goes back.
    pub fn mark(&self) -> DeferredMark {
        self.round.set(self.round.get() + 1);
        DeferredMark { checks: self.checks.borrow().len(), round: self.round.get(), modes: self.modes.borrow().clone() }
    }

    /// Goes back to where it was.
    pub fn back_to(&self, mark: &DeferredMark) {
        let mut checks = self.checks.borrow_mut();
        checks.truncate(mark.checks);
        for (_, done) in &mut *checks {
            if done.is_some_and(|round| round >= mark.round) {
                *done = None;
            }
        }
        self.open.set(checks.iter().filter(|(_, done)| done.is_none()).count());
        let mut children = self.children.borrow_mut();
        children.clear();
        for (place, (check, _)) in checks.iter().enumerate() {
            if let What::Child { rid, .. } = check.what {
                children.insert((check.constraint, rid), place);
            }
        }
        self.modes.borrow_mut().clone_from(&mark.modes);
    }

    /// Fails where a definition, whose tag this is, has changed a table with rows that are left to
    /// look at: they may lie elsewhere now.
    ///
    /// # Errors
    /// 55006.
    pub fn refuse_changes(&self, before: &Schema, after: &Schema, tag: &str) -> Result<(), SqlError> {
        for (check, _) in self.checks.borrow().iter().filter(|(_, done)| done.is_none()) {
            let table = match check.what {
                What::Unique { table, .. } | What::Child { table, .. } => Some(table),
                What::Parent { child, .. } => {
                    let key = before.table(child).and_then(|child| foreign_key(child, check.constraint));
                    key.map(|key| key.parent)
                }
            };
            let Some(was) = table.and_then(|table| before.table(table)) else { continue };
            let same = after.table(was.table.oid).is_some_and(|is| {
                // Privileges do not matter.
                Arc::ptr_eq(was, is) || Table { grants: was.table.grants.clone(), ..is.table.clone() } == was.table
            });
            if !same {
                let message = format!("cannot {tag} \"{}\" because it has pending trigger events", was.table.name);
                return Err(SqlError::new(SqlState::OBJECT_IN_USE, message));
            }
        }
        Ok(())
    }
}

impl Run<'_, '_> {
    /// Whether a constraint is deferred now.
    pub(super) fn defers(&self, constraint: Oid, deferral: Deferral) -> bool {
        deferral != Deferral::Never && self.deferred.is_some_and(|(deferred, _)| deferred.defers(constraint, deferral))
    }

    /// Whether the row's foreign key is still unchecked.
    pub(super) fn is_deferred(&self, constraint: Oid, rid: Rid) -> bool {
        self.deferred.is_some_and(|(deferred, _)| deferred.has_child(constraint, rid))
    }

    /// Leaves something to be looked at later.
    pub(super) fn defer(&self, check: Check) -> Result<(), SqlError> {
        // Executed again, it would be looked at now.
        self.transaction.keep_records(NotRecorded::Undetermined);
        match self.deferred {
            Some((deferred, memory)) => deferred.push(check, memory),
            None => Err(SqlError::internal("a deferred check without a transaction")),
        }
    }

    /// Looks at what was deferred.
    ///
    /// # Errors
    /// 23503, 23505, and what goes wrong in reading.
    pub fn check_deferred(&self, checks: &[Check]) -> Result<(), SqlError> {
        let Some(schema) = self.schema else { return Ok(()) };
        for Check { constraint, what, .. } in checks {
            self.step()?;
            // A row that is gone keeps no key.
            match what {
                What::Unique { table, rid } => {
                    let Some(info) = schema.table(*table) else { continue };
                    let Some(index) = info.table.indexes.iter().position(|index| index.oid == *constraint) else {
                        continue;
                    };
                    self.check_unique(info, index, *rid)?;
                }
                What::Child { table, rid } => {
                    let Some(info) = schema.table(*table) else { continue };
                    let Some(key) = foreign_key(info, *constraint) else { continue };
                    let Some(record) = self.transaction.read(&info.rows, *rid).map_err(read_error)? else { continue };
                    let Some(wanted) = values(info, record.row, &key.columns)? else { continue };
                    self.find_parent(info, key, &wanted)?;
                }
                What::Parent { child, was } => {
                    let Some(child) = schema.table(*child) else { continue };
                    let Some(key) = foreign_key(child, *constraint) else { continue };
                    let Some(parent) = schema.table(key.parent) else { continue };
                    self.check_unreferenced(parent, child, key, was)?;
                }
            }
        }
        Ok(())
    }

    /// Fails if another row has the key of this one in an index that takes equal keys. Blocks while
    /// another transaction is about to write or delete such a row.
    pub(super) fn check_unique(&self, info: &TableInfo, index: usize, rid: Rid) -> Result<(), SqlError> {
        loop {
            let mut violated = false;
            let checked = self.write(WhenLocked::Wait, |transaction| {
                match transaction.check_key(&info.rows, info.index_number(index), rid) {
                    Err(WriteError::UniqueViolation { .. }) => {
                        violated = true;
                        Ok(())
                    }
                    other => other,
                }
            })?;
            match checked {
                Written::Done(()) if violated => {
                    let record = self.transaction.read(&info.rows, rid).map_err(read_error)?;
                    let row = record.map_or_else(Vec::new, |record| record.row.to_vec());
                    return Err(self.duplicate(info, &info.table.indexes[index].name, &row));
                }
                Written::Done(()) => return Ok(()),
                Written::Changed => self.transaction.refresh(),
                Written::Gone | Written::Held => return Err(write_error(WriteError::Conflict)),
            }
        }
    }
}

fn foreign_key(info: &TableInfo, oid: Oid) -> Option<&ForeignKey> {
    info.table.foreign_keys.iter().find(|key| key.oid == oid)
}
