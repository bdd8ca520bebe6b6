//! COMMENT ON.

use freshet_sql::{SqlError, SqlState};

use super::{
    constraint::no_constraint,
    database::no_database,
    syntax::{Comment, Commented, RelationKind},
    work::{Step, Work, error},
};
use crate::schema::{self, IndexConstraint, Named, Object, Oid};

impl Work<'_, '_, '_> {
    pub(super) fn comment(&mut self, statement: &Comment) -> Step<&'static str> {
        if let Commented::Database(name) = &statement.on
            && self.schema().database_named(name).is_none()
        {
            self.notice(SqlState::WARNING, no_database(name).message.clone());
            return Ok("COMMENT");
        }
        let (object, column) = self.commented(&statement.on)?;
        let constraint = matches!(statement.on, Commented::Constraint(..));
        let shared = matches!(statement.on, Commented::Role(_) | Commented::Database(_));
        self.set_comment_of((object, column, constraint), shared, statement.text.as_deref())?;
        Ok("COMMENT")
    }

    /// Sets the comment on an object in the database, on a column of it, or on the constraint of
    /// its id; or takes it away.
    pub(super) fn set_comment(&mut self, about: (Oid, Option<u16>, bool), text: Option<&str>) -> Result<(), SqlError> {
        self.set_comment_of(about, false, text)
    }

    fn set_comment_of(
        &mut self,
        (object, column, constraint): (Oid, Option<u16>, bool),
        shared: bool,
        text: Option<&str>,
    ) -> Result<(), SqlError> {
        let known = self.schema().comment(object, column, constraint).map(|comment| comment.oid);
        match (known, text.filter(|text| !text.is_empty())) {
            (None, None) => Ok(()),
            (Some(oid), None) => self.change.remove(oid),
            (known, Some(text)) => {
                let oid = match known {
                    Some(oid) => oid,
                    None => self.change.take_oid()?,
                };
                let text = text.to_owned();
                self.put(Object::Comment(schema::Comment { oid, object, column, constraint, shared, text }))
            }
        }
    }

    /// What a statement speaks of, which the role must own.
    fn commented(&self, on: &Commented) -> Result<(Oid, Option<u16>), SqlError> {
        match on {
            Commented::Relation(kind, name) => {
                let named = self.relation(name)?;
                let (oid, owner) = self.owned(named)?;
                let fits = match kind {
                    RelationKind::Table => matches!(named, Named::Table(_)),
                    RelationKind::View => matches!(named, Named::View(_)),
                    RelationKind::Sequence => matches!(named, Named::Sequence(_)),
                    RelationKind::Index => matches!(named, Named::Index { .. }),
                };
                if !fits {
                    let message = format!("\"{}\" is not {}", name.name, kind.with_article());
                    return Err(error(SqlState::WRONG_OBJECT_TYPE, message));
                }
                self.check_owner(owner, kind.name(), &name.name)?;
                Ok((oid, None))
            }
            Commented::Column(relation, column) => {
                let named = self.relation(relation)?;
                let (oid, owner) = self.owned(named)?;
                self.check_owner(owner, "relation", &relation.name)?;
                let number = match named {
                    Named::Table(oid) => self.table_by_oid(oid)?.table.column(column),
                    Named::View(oid) => self.view_by_oid(oid)?.columns.iter().position(|(known, _)| known == column),
                    _ => None,
                };
                let missing = || {
                    let message = format!("column \"{column}\" of relation \"{}\" does not exist", relation.name);
                    error(SqlState::UNDEFINED_COLUMN, message)
                };
                Ok((oid, Some(number.ok_or_else(missing)? as u16)))
            }
            Commented::Constraint(constraint, name) => {
                let info = self.table(name)?;
                self.check_owner(info.table.owner, "relation", &info.table.name)?;
                let keys = info.table.indexes.iter();
                let mut keys = keys.filter(|index| index.constraint != IndexConstraint::None);
                let checks = &info.table.checks;
                let oid = keys.find(|index| index.name == *constraint).map(|index| index.oid);
                let oid = oid.or_else(|| checks.iter().find(|check| check.name == *constraint).map(|it| it.oid));
                let foreign = &info.table.foreign_keys;
                let oid = oid.or_else(|| foreign.iter().find(|key| key.name == *constraint).map(|it| it.oid));
                Ok((oid.ok_or_else(|| no_constraint(constraint, &info.table))?, None))
            }
            Commented::Schema(name) => {
                let oid = self.namespace(name)?;
                let owner = self.schema().namespace_by_oid(oid).map_or(0, |namespace| namespace.owner);
                self.check_owner(owner, "schema", name)?;
                Ok((oid, None))
            }
            Commented::Database(name) => {
                let database = self.schema().database_named(name).ok_or_else(|| no_database(name))?;
                self.check_owner(database.owner, "database", name)?;
                Ok((database.oid, None))
            }
            Commented::Extension(name) => {
                let extension = self.extension(name)?;
                self.check_owner(extension.owner, "extension", name)?;
                Ok((extension.oid, None))
            }
            Commented::Role(name) => {
                let oid = self.role(&super::syntax::RoleName::Named(name.clone()))?;
                self.check_administers(oid, true)?;
                Ok((oid, None))
            }
        }
    }

    /// A relation's id and owner.
    fn owned(&self, named: Named) -> Result<(Oid, Oid), SqlError> {
        Ok(match named {
            Named::Table(oid) => (oid, self.table_by_oid(oid)?.table.owner),
            Named::View(oid) => (oid, self.view_by_oid(oid)?.owner),
            Named::Sequence(oid) => (oid, self.sequence_by_oid(oid)?.owner),
            Named::Index { table, number } => {
                let info = self.table_by_oid(table)?;
                (info.table.indexes[number].oid, info.table.owner)
            }
        })
    }
}
