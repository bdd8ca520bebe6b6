//! FOR UPDATE and its like: the tables and rows that a query locks.
//!
//! A clause names what is in FROM, or means all of it. What it says of a subquery or a view it says
//! of all that is in there. A table in FROM brings a hidden column by whose values its rows are
//! locked. Where the clause was written, or where a LIMIT follows, the plan gets a [`Lock`]: so
//! what is locked is what comes out there, and no more of it than is asked for.

use std::sync::Arc;

use datafusion_expr::Expr;
use freshet_sql::{
    SqlError, SqlState,
    general::Lockable,
    locking::{self, RowMark, name_of_lock},
};
use sqlparser::ast::{Distinct, GroupByExpr, LockClause, Select};

use super::{Binder, query::Rows};
use crate::node::{Lock, Mark};

/// The clauses that hold for a query.
#[derive(Clone, Debug, Default)]
pub(super) struct Clauses {
    pub all: Vec<locking::Locking>,
    /// Whether some of them were written here, not around what the query stands in.
    pub own: bool,
    /// Whether the query is that of a view, in which set operations hide rows silently.
    pub of_view: bool,
}

/// What clauses say of one query's FROM.
#[derive(Debug, Default)]
pub(super) struct Locking {
    pub clauses: Vec<locking::Locking>,
    of_view: bool,
    /// Whether some of them were written here.
    pub own: bool,
    /// The names in FROM, which OF may use.
    named: Vec<String>,
    pub marked: Vec<Marked>,
}

/// Something in FROM whose rows are locked.
#[derive(Clone, Debug)]
pub(super) struct Marked {
    /// The table, and the column by which its rows are locked; nothing for a query that has none.
    pub rows: Option<(Arc<dyn Lockable>, Expr)>,
    pub mark: RowMark,
    /// Whether an outer join may have no row of it.
    pub nullable: bool,
}

impl Locking {
    /// For a query for which these clauses hold.
    pub fn of(clauses: Clauses) -> Self {
        let Clauses { all, own, of_view } = clauses;
        Self { clauses: all, own, of_view, ..Self::default() }
    }

    /// The relations whose rows the plan has to mark, so that they can be locked.
    fn marks(self) -> Result<Vec<Mark>, SqlError> {
        for clause in &self.clauses {
            if let Some(missing) = clause.of.iter().find(|of| !self.named.contains(of)) {
                let name = name_of_lock(clause.lock);
                let message = format!("relation \"{missing}\" in {name} clause not found in FROM clause");
                return Err(SqlError::new(SqlState::UNDEFINED_TABLE, message));
            }
        }
        let mut marks = Vec::with_capacity(self.marked.len());
        for Marked { rows, mark, nullable } in self.marked {
            match rows {
                Some((table, row)) => marks.push(Mark { table, row, mark, nullable }),
                None if nullable => return Err(nullable_side(mark)),
                None => {}
            }
        }
        Ok(marks)
    }
}

#[cold]
fn refused(message: String) -> SqlError {
    SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message)
}

/// What several clauses say together.
fn together(clauses: &[locking::Locking]) -> Option<RowMark> {
    clauses.iter().fold(None, |mark, clause| Some(RowMark { lock: clause.lock, when: clause.when }.and(mark)))
}

impl Clauses {
    /// Those of a query, and those from around it.
    pub fn of(locks: &[LockClause], around: &Self) -> Self {
        let mut all: Vec<locking::Locking> = locks.iter().map(locking::clause).collect();
        let own = around.own || !all.is_empty();
        all.extend(around.all.iter().cloned());
        Self { all, own, of_view: around.of_view }
    }

    fn first(&self) -> Option<&'static str> {
        self.all.first().map(|clause| name_of_lock(clause.lock))
    }

    /// # Errors
    /// 0A000 where a set operation has no rows to be locked.
    pub fn check_set_operation(&self) -> Result<(), SqlError> {
        match self.first() {
            Some(name) if !self.of_view || self.own => {
                Err(refused(format!("{name} is not allowed with UNION/INTERSECT/EXCEPT")))
            }
            _ => Ok(()),
        }
    }

    /// # Errors
    /// 0A000 where VALUES has no rows to be locked.
    pub fn check_values(&self) -> Result<(), SqlError> {
        match self.first() {
            Some(name) if self.own => Err(refused(format!("{name} cannot be applied to VALUES"))),
            _ => Ok(()),
        }
    }
}

impl Binder<'_> {
    /// What clauses say of a table, a view or a query that stands in FROM by this name.
    pub(super) fn locking_of(&mut self, name: &str) -> Clauses {
        let locking = &mut self.level().locking;
        if locking.clauses.is_empty() {
            return Clauses::default();
        }
        locking.named.push(name.to_owned());
        let mut all = locking.clauses.clone();
        all.retain(|clause| clause.of.is_empty() || clause.of.iter().any(|of| of == name));
        all.iter_mut().for_each(|clause| clause.of.clear());
        Clauses { all, own: false, of_view: locking.of_view }
    }

    /// Something else in FROM, which clauses must not name.
    ///
    /// # Errors
    /// 0A000
    pub(super) fn not_locked(&mut self, name: &str, what: &str) -> Result<(), SqlError> {
        let locking = &mut self.level().locking;
        let naming = locking.clauses.iter().find(|clause| clause.of.iter().any(|of| of == name));
        match naming.filter(|_| !locking.named.iter().any(|known| known == name)) {
            Some(clause) => Err(refused(format!("{} cannot be applied to {what}", name_of_lock(clause.lock)))),
            None => Ok(()),
        }
    }

    /// Notes a table whose rows are locked.
    pub(super) fn mark_table(&mut self, clauses: &Clauses, table: Arc<dyn Lockable>, row: Expr) {
        if let Some(mark) = together(&clauses.all) {
            let marked = Marked { rows: Some((table, row)), mark, nullable: false };
            self.level().locking.marked.push(marked);
        }
    }

    /// Notes a query in FROM whose rows are locked: what of it is to be locked outside, and whether
    /// it locks rows itself.
    pub(super) fn mark_query(&mut self, clauses: &Clauses, marks: Vec<Mark>, by_itself: bool) {
        let marked = &mut self.level().locking.marked;
        if let Some(mark) = together(&clauses.all).filter(|_| by_itself) {
            marked.push(Marked { rows: None, mark, nullable: false });
        }
        let of = |Mark { table, row, mark, nullable }| Marked { rows: Some((table, row)), mark, nullable };
        marked.extend(marks.into_iter().map(of));
    }

    /// How many things are marked in FROM by now.
    pub(super) fn marked_by_now(&mut self) -> usize {
        self.level().locking.marked.len()
    }

    /// Says of what was marked from here to there that an outer join may have no row of it.
    pub(super) fn nullable(&mut self, marked: std::ops::Range<usize>) {
        let all = self.level().locking.marked.get_mut(marked).unwrap_or_default();
        all.iter_mut().for_each(|marked| marked.nullable = true);
    }

    /// The rows that a SELECT locks, when all of it is known.
    ///
    /// # Errors
    /// 0A000 when it has something that leaves no rows to be locked; 42P01.
    pub(super) fn marks(&mut self, select: &Select, computed: [bool; 3]) -> Result<Vec<Mark>, SqlError> {
        let locking = std::mem::take(&mut self.level().locking);
        let Some(first) = locking.clauses.first() else { return Ok(Vec::new()) };
        let [aggregates, windows, series] = computed;
        let unlockable = [
            (!matches!(select.distinct, None | Some(Distinct::All)), "DISTINCT clause"),
            (
                !matches!(&select.group_by, GroupByExpr::Expressions(groups, modifiers)
                    if groups.is_empty() && modifiers.is_empty()),
                "GROUP BY clause",
            ),
            (select.having.is_some(), "HAVING clause"),
            (aggregates, "aggregate functions"),
            (windows, "window functions"),
            (series, "set-returning functions in the target list"),
        ];
        if let Some((_, what)) = unlockable.iter().find(|(is_so, _)| *is_so) {
            return Err(refused(format!("{} is not allowed with {what}", name_of_lock(first.lock))));
        }
        locking.marks()
    }

    /// The rows that `TABLE` locks.
    ///
    /// # Errors
    /// 42P01.
    pub(super) fn marks_of_from(&mut self) -> Result<Vec<Mark>, SqlError> {
        std::mem::take(&mut self.level().locking).marks()
    }

    /// Locks the rows that come out of a plan.
    pub(super) fn locked(&mut self, rows: &mut Rows) {
        if rows.marks.is_empty() {
            return;
        }
        let marks = std::mem::take(&mut rows.marks);
        for mark in &marks {
            let oid = mark.table.oid();
            if !self.locked.contains(&oid) {
                self.locked.push(oid);
            }
        }
        self.locks += 1;
        if self.depth == 1 {
            // A cursor may ask what it stands on.
            rows.records = marks.iter().map(|mark| (mark.table.oid(), mark.row.clone())).collect();
        }
        let plan = std::mem::take(&mut rows.plan);
        rows.plan = Lock::plan(plan, marks, self.shared_depth > 0);
    }
}

/// The error for rows that may not be there.
#[cold]
pub(crate) fn nullable_side(mark: RowMark) -> SqlError {
    let name = name_of_lock(mark.lock);
    refused(format!("{name} cannot be applied to the nullable side of an outer join"))
}
