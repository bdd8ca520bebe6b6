//! ALTER TABLE … ALTER COLUMN.

use std::{ops::ControlFlow, sync::Arc};

use freshet_sql::{
    SqlError, SqlState, Type,
    types::{Cast, CastContext, Kind},
};
use sqlparser::ast::{Expr, Ident, VisitMut, VisitorMut};

use super::{
    create_table::{are_comparable, check_identity_type, column_type},
    expression::next_value,
    rewrite::Fill,
    syntax::{ColumnChange, IdentityDefinition, SequenceOptions},
    work::{Step, Work, bound, error},
};
use crate::{
    bind::{Scope, modify::parse_expression, name_of},
    expression::{Expression, Typed},
    schema::{Identity, TableInfo},
};

/// A condition with another name for a column.
pub(super) fn renamed(sql: &str, old: &str, new: &str) -> Result<String, SqlError> {
    struct Rename<'n>(&'n str, &'n str);
    impl VisitorMut for Rename<'_> {
        type Break = ();

        fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
            let Self(old, new) = self;
            let name = match expression {
                Expr::Identifier(name) => Some(name),
                Expr::CompoundIdentifier(parts) => parts.last_mut(),
                _ => None,
            };
            if let Some(name) = name
                && name_of(name) == *old
            {
                *name = Ident::with_quote('"', *new);
            }
            ControlFlow::Continue(())
        }
    }
    let mut expression = parse_expression(sql)?;
    let _ = expression.visit(&mut Rename(old, new));
    Ok(expression.to_string())
}

impl Work<'_, '_, '_> {
    pub(super) fn change_column(&mut self, info: &Arc<TableInfo>, number: usize, change: &ColumnChange) -> Step<()> {
        let mut table = info.table.clone();
        let column = &mut table.columns[number];
        let name = column.name.clone();
        match change {
            ColumnChange::Default(value) => {
                if column.identity.is_some() {
                    let message =
                        format!("column \"{name}\" of relation \"{}\" is an identity column", info.table.name);
                    let refused = error(SqlState::SYNTAX_ERROR, message);
                    let hint = "Use ALTER TABLE ... ALTER COLUMN ... DROP IDENTITY instead.";
                    return Err(refused.with_hint(hint).into());
                }
                column.default = match value {
                    Some(value) => self.default(value, &name, column.ty)?.0,
                    None => None,
                };
                self.put_table(table)?;
            }
            ColumnChange::NotNull(true) => {
                if !column.not_null {
                    column.not_null = true;
                    self.validate(info, &[number], &[])?;
                    self.put_table(table)?;
                }
            }
            ColumnChange::NotNull(false) => {
                let in_key = info
                    .table
                    .primary_key()
                    .is_some_and(|key| key.columns.iter().any(|part| usize::from(part.column) == number));
                if in_key {
                    let message = format!("column \"{name}\" is in a primary key");
                    return Err(error(SqlState::INVALID_TABLE_DEFINITION, message).into());
                }
                if column.identity.is_some() {
                    let message =
                        format!("column \"{name}\" of relation \"{}\" is an identity column", info.table.name);
                    return Err(error(SqlState::SYNTAX_ERROR, message).into());
                }
                column.not_null = false;
                self.put_table(table)?;
            }
            ColumnChange::Type(ty, using) => self.change_type(info, number, column_type(ty, &name)?, using.as_ref())?,
            ColumnChange::AddIdentity(identity) => self.add_identity(info, number, identity)?,
            ColumnChange::SetIdentity(always, options) => self.set_identity(info, number, *always, options)?,
            ColumnChange::DropIdentity { if_exists } => self.drop_identity(info, number, *if_exists)?,
            ColumnChange::Storage => {}
        }
        Ok(())
    }

    fn add_identity(
        &mut self,
        info: &Arc<TableInfo>,
        number: usize,
        identity: &IdentityDefinition,
    ) -> Result<(), SqlError> {
        let column = &info.table.columns[number];
        let (name, table) = (&column.name, &info.table.name);
        let wrong = |what: &str| {
            let message = format!("column \"{name}\" of relation \"{table}\" {what}");
            Err(error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message))
        };
        check_identity_type(column.ty)?;
        if column.identity.is_some() {
            return wrong("is already an identity column");
        }
        if column.default.is_some() {
            return wrong("already has a default value");
        }
        if !column.not_null {
            return wrong("must be declared NOT NULL before identity can be added");
        }
        let names = (info.table.namespace, table.as_str(), name.as_str());
        let owner = (info.table.oid, number as u16);
        let sequence = self.make_owned_sequence(names, info.table.owner, owner, column.ty, &identity.options)?;
        let mut table = info.table.clone();
        table.columns[number].identity = Some(if identity.always { Identity::Always } else { Identity::ByDefault });
        table.columns[number].default = Some(next_value(sequence));
        self.put_table(table).map(drop)
    }

    fn set_identity(
        &mut self,
        info: &Arc<TableInfo>,
        number: usize,
        always: Option<bool>,
        options: &SequenceOptions,
    ) -> Result<(), SqlError> {
        if info.table.columns[number].identity.is_none() {
            return Err(not_identity(info, number));
        }
        if let Some(always) = always {
            let mut table = info.table.clone();
            table.columns[number].identity = Some(if always { Identity::Always } else { Identity::ByDefault });
            self.put_table(table)?;
        }
        if *options != SequenceOptions::default()
            && let Some(sequence) = self.sequence_of(info.table.oid, number)
        {
            self.change_sequence((*sequence).clone(), options)?;
        }
        Ok(())
    }

    fn drop_identity(&mut self, info: &Arc<TableInfo>, number: usize, if_exists: bool) -> Result<(), SqlError> {
        if info.table.columns[number].identity.is_none() {
            let missing = not_identity(info, number);
            if !if_exists {
                return Err(missing);
            }
            self.notice(SqlState::SUCCESSFUL_COMPLETION, format!("{}, skipping", missing.message));
            return Ok(());
        }
        let mut table = info.table.clone();
        table.columns[number].identity = None;
        table.columns[number].default = None;
        self.put_table(table)?;
        if let Some(sequence) = self.sequence_of(info.table.oid, number) {
            self.ddl.effects.touch_state(self.ddl.catalog, sequence.state);
            self.change.remove_comments(sequence.oid)?;
            self.change.remove(sequence.oid)?;
        }
        Ok(())
    }

    fn change_type(&mut self, info: &Arc<TableInfo>, number: usize, ty: Type, using: Option<&Expr>) -> Step<()> {
        let column = &info.table.columns[number];
        let name = column.name.clone();
        if column.ty == ty && using.is_none() {
            return Ok(());
        }
        self.check_unused_column(info.table.oid, &name)?;
        if column.identity.is_some() {
            check_identity_type(ty)?;
            if let Some(sequence) = self.sequence_of(info.table.oid, number) {
                let mut sequence = (*sequence).clone();
                let options = SequenceOptions {
                    ty: Some(sqlparser::ast::DataType::Custom(
                        sqlparser::ast::ObjectName::from(vec![Ident::new(ty.kind().catalog_name())]),
                        Vec::new(),
                    )),
                    ..SequenceOptions::default()
                };
                sequence.owned_by = Some((info.table.oid, number as u16));
                self.change_sequence(sequence, &options)?;
            }
        }
        let expression = self.conversion(info, number, ty, using)?;
        let mut table = info.table.clone();
        table.columns[number].ty = ty;
        if let Some(sql) = &column.default {
            // The default follows, if it can.
            let binder = self.binder();
            let typed = bound(binder.expression(&parse_expression(sql)?, &Scope::nothing()), "DEFAULT expression")?;
            binder.coerce(typed, ty, CastContext::Assignment).map_err(|_| {
                let to = ty.kind().sql_name();
                let message = format!("default for column \"{name}\" cannot be cast automatically to type {to}");
                error(SqlState::DATATYPE_MISMATCH, message)
            })?;
        }
        self.check_keys_after(info, &table, number)?;
        self.retype_computed(&mut table)?;
        let same = table.columns.iter().zip(&info.table.columns).all(|(new, old)| !new.hidden || new == old)
            && table.columns.len() == info.table.columns.len();
        if using.is_none() && same && is_only_wider(column.ty, ty) {
            // Rows lie as before. What older rows have instead of the column is a value of the new
            // type, too.
            self.put_table(table)?;
            return Ok(());
        }
        self.rewrite(info, table, vec![(number, Fill::Expression(expression))])?;
        Ok(())
    }

    /// What makes a value of the new type of a row.
    fn conversion(
        &self,
        info: &Arc<TableInfo>,
        number: usize,
        ty: Type,
        using: Option<&Expr>,
    ) -> Result<Expression, SqlError> {
        let column = &info.table.columns[number];
        let (name, to) = (&column.name, ty.kind().sql_name());
        let binder = self.binder();
        match using {
            Some(using) => {
                let typed = bound(binder.expression(using, &Scope::over(&info.table)), "transform expression")?;
                let coerced = binder.coerce(typed, ty, CastContext::Assignment).map_err(|cause| {
                    if cause.state != SqlState::DATATYPE_MISMATCH && cause.state != SqlState::CANNOT_COERCE {
                        return cause;
                    }
                    let message = format!(
                        "result of USING clause for column \"{name}\" cannot be cast automatically to type {to}"
                    );
                    error(SqlState::DATATYPE_MISMATCH, message).with_hint("You might need to add an explicit cast.")
                })?;
                Ok(coerced.expression)
            }
            None => {
                if Cast::find(column.ty.kind(), ty, CastContext::Assignment).is_err() {
                    let message = format!("column \"{name}\" cannot be cast automatically to type {to}");
                    let hint = format!("You might need to specify \"USING {name}::{ty}\".");
                    return Err(error(SqlState::DATATYPE_MISMATCH, message).with_hint(hint));
                }
                let own = Expression::Column { source: 0, column: number as u16 };
                let typed = Typed { expression: own, ty: column.ty };
                Ok(binder.coerce(typed, ty, CastContext::Assignment)?.expression)
            }
        }
    }

    /// Fails when a foreign key of, or to, the table cannot compare its columns any more.
    fn check_keys_after(
        &self,
        info: &Arc<TableInfo>,
        after: &crate::schema::Table,
        number: usize,
    ) -> Result<(), SqlError> {
        let own = info.table.foreign_keys.iter().map(|key| (after, key));
        let others = self.schema().referring(info.table.oid).iter().filter_map(|(child, at)| {
            let child = &self.schema().table(*child).filter(|child| child.table.oid != after.oid)?.table;
            Some((child, &child.foreign_keys[*at]))
        });
        for (child, key) in own.chain(others) {
            let parent = match self.schema().table(key.parent) {
                Some(parent) if parent.table.oid != after.oid => &parent.table,
                _ => after,
            };
            for (column, referred) in key.columns.iter().zip(&key.parent_columns) {
                let (column, referred) = (usize::from(*column), usize::from(*referred));
                let touched =
                    child.oid == after.oid && column == number || parent.oid == after.oid && referred == number;
                let (one, other) = (&child.columns[column], &parent.columns[referred]);
                if touched && !are_comparable(one.ty, other.ty) {
                    let message = format!("foreign key constraint \"{}\" cannot be implemented", key.name);
                    let detail = format!(
                        "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
                        one.name,
                        other.name,
                        one.ty.kind().sql_name(),
                        other.ty.kind().sql_name()
                    );
                    return Err(error(SqlState::DATATYPE_MISMATCH, message).with_detail(detail));
                }
            }
        }
        Ok(())
    }
}

/// Whether all values of one type are values of the other, and lie in rows alike.
fn is_only_wider(from: Type, to: Type) -> bool {
    let text = |ty: Type| matches!(ty.kind(), Kind::Text | Kind::Varchar);
    text(from)
        && text(to)
        && match (from.character_length(), to.character_length()) {
            (_, None) => true,
            (Some(from), Some(to)) => from <= to,
            (None, Some(_)) => false,
        }
}

fn not_identity(info: &TableInfo, number: usize) -> SqlError {
    let (name, table) = (&info.table.columns[number].name, &info.table.name);
    let message = format!("column \"{name}\" of relation \"{table}\" is not an identity column");
    error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message)
}
