//! ON CONFLICT: which indexes it is about, and what is done.

use std::rc::Rc;

use freshet_sql::{SqlError, SqlState};
use sqlparser::ast::{self, ConflictTarget, OnConflictAction};

use super::{
    Binder, Bound, Scope, ScopeSource, implied,
    modify::{ConflictPlan, ConflictUpdate, Target},
    name_of, qualified,
    select::split,
    syntax_error,
};
use crate::{
    ddl::syntax::{IndexElement, Indexed, conflict_target},
    expression::Expression,
    schema::{Index, IndexConstraint, Table, TableInfo},
    syntax::CONFLICT_TARGET,
};

/// What is said of the index whose keys decide.
#[derive(Default)]
struct Wanted {
    columns: Vec<u16>,
    expressions: Vec<Expression>,
    /// The rows that it must have fulfil all of these.
    predicate: Vec<Expression>,
}

impl Wanted {
    /// Whether an index is on just what is said, and has all rows that are spoken of.
    fn fits(&self, info: &TableInfo, place: usize) -> bool {
        let (mut columns, mut expressions) = (Vec::new(), Vec::new());
        for part in &info.table.indexes[place].columns {
            match info.computed.iter().find(|it| it.column == part.column) {
                Some(computed) => expressions.push(&computed.expression),
                None => columns.push(part.column),
            }
        }
        columns.sort_unstable();
        columns.dedup();
        let among = |one: &Expression| expressions.iter().any(|other| implied::same(one, other));
        columns == self.columns
            && self.expressions.iter().all(among)
            && expressions.iter().all(|one| self.expressions.iter().any(|other| implied::same(one, other)))
            && info.predicates[place].iter().all(|wanted| implied::implied(&self.predicate, wanted))
    }
}

impl Binder<'_> {
    /// Binds ON CONFLICT of an INSERT into this table.
    ///
    /// # Errors
    /// 42P10 when no index fits, 42704 when there is no such constraint, and when it makes no
    /// sense.
    pub(super) fn on_conflict(
        &self,
        conflict: &ast::OnConflict,
        (info, alias, need): Target<'_>,
    ) -> Bound<ConflictPlan> {
        let mut arbiters = self.arbiters(conflict.conflict_target.as_ref(), (info, alias, need))?;
        let named = conflict.conflict_target.is_some();
        let update = match &conflict.action {
            OnConflictAction::DoNothing => None,
            OnConflictAction::DoUpdate(update) => {
                if !named {
                    return Err(syntax_error(
                        "ON CONFLICT DO UPDATE requires inference specification or constraint name",
                    )
                    .into());
                }
                let mut scope = Scope::needing(info, alias, need);
                let mut excluded = ScopeSource::table(info, "excluded".to_owned(), None);
                excluded.table = None;
                // The rows that would be inserted are the role's own; still, to read them needs
                // SELECT, as in PostgreSQL.
                excluded.need = Some(Rc::clone(need));
                scope.sources.push(excluded);
                // Without a table's name, the row that is there is meant.
                let assignments = self.assignments(&update.assignments, (info, need), &scope)?;
                let condition = update.selection.as_ref().map(|it| self.condition(it, &scope, "WHERE")).transpose()?;
                Some(ConflictUpdate { assignments, condition })
            }
        };
        arbiters.sort_by_key(|place| info.table.indexes[*place].oid);
        let deferrable = arbiters.iter().position(|place| info.table.indexes[*place].deferral.is_deferrable());
        let refused = deferrable.map(|at| info.table.indexes[arbiters[at]].name.clone());
        arbiters.truncate(deferrable.unwrap_or(arbiters.len()));
        let numbers = arbiters.iter().map(|place| info.index_number(*place)).collect();
        Ok(ConflictPlan { arbiters, numbers, refused, update })
    }

    /// The indexes whose keys decide whether a row conflicts, their places among the table's.
    fn arbiters(&self, target: Option<&ConflictTarget>, (info, alias, need): Target<'_>) -> Bound<Vec<usize>> {
        let indexes = || info.table.indexes.iter().enumerate().filter(|(_, index)| index.unique && index.oid != 0);
        let wanted = match target {
            None => return Ok(indexes().map(|(place, _)| place).collect()),
            Some(ConflictTarget::Columns(columns)) => {
                let columns = columns.iter().map(|column| Ok(self.target_column(info, &name_of(column))? as u16));
                Wanted { columns: columns.collect::<Result<_, SqlError>>()?, ..Wanted::default() }
            }
            Some(ConflictTarget::OnConstraint(name)) => {
                let (_, name) = qualified(name)?;
                match name.strip_prefix(CONFLICT_TARGET) {
                    Some(text) => self.wanted(text, &Scope::needing(info, alias, need), info)?,
                    None => return self.arbiter_of(&name, (info, alias, need)).map(|place| vec![place]),
                }
            }
        };
        let Wanted { mut columns, expressions, predicate } = wanted;
        columns.iter().for_each(|column| need.read(*column));
        columns.sort_unstable();
        columns.dedup();
        let wanted = Wanted { columns, expressions, predicate };
        let found: Vec<_> = indexes().map(|(place, _)| place).filter(|place| wanted.fits(info, *place)).collect();
        if found.is_empty() {
            let message = "there is no unique or exclusion constraint matching the ON CONFLICT specification";
            return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message).into());
        }
        Ok(found)
    }

    /// What is said in parentheses, and after WHERE.
    fn wanted(&self, text: &str, scope: &Scope, info: &TableInfo) -> Bound<Wanted> {
        let (elements, predicate) = conflict_target(text)?;
        let mut wanted = Wanted::default();
        for IndexElement { of, order, nulls_first, .. } in elements {
            let refused = |what: &str| {
                let message = format!("{what} is not allowed in ON CONFLICT clause");
                Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message))
            };
            if order.is_some() {
                return Ok(refused("ASC/DESC")?);
            }
            if nulls_first.is_some() {
                return Ok(refused("NULLS FIRST/LAST")?);
            }
            let expression = match of {
                Indexed::Column(name) => {
                    wanted.columns.push(self.target_column(info, &name)? as u16);
                    continue;
                }
                Indexed::Expression(expr) => self.settle(self.expression(&expr, scope)?)?.expression,
            };
            match expression {
                Expression::Column { column, .. } => wanted.columns.push(column),
                expression => wanted.expressions.push(expression),
            }
        }
        if let Some(predicate) = predicate {
            split(self.condition(&predicate, scope, "WHERE")?, &mut wanted.predicate);
        }
        Ok(wanted)
    }

    /// The index of the constraint of this name.
    fn arbiter_of(&self, name: &str, (info, _, need): Target<'_>) -> Bound<usize> {
        let of_constraint = |index: &Index| {
            index.unique && index.oid != 0 && index.constraint != IndexConstraint::None && index.name == name
        };
        if let Some(place) = info.table.indexes.iter().position(of_constraint) {
            info.table.indexes[place].columns.iter().for_each(|part| need.read(part.column));
            return Ok(place);
        }
        let Table { checks, foreign_keys, name: table, .. } = &info.table;
        let other = checks.iter().any(|check| check.name == name) || foreign_keys.iter().any(|key| key.name == name);
        Err(match other {
            true => {
                let message = "constraint in ON CONFLICT clause has no associated index";
                SqlError::new(SqlState::WRONG_OBJECT_TYPE, message).into()
            }
            false => {
                let message = format!("constraint \"{name}\" for table \"{table}\" does not exist");
                SqlError::new(SqlState::UNDEFINED_OBJECT, message).into()
            }
        })
    }
}
