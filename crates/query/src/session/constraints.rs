//! SET CONSTRAINTS, and what it defers.

use freshet_postgres::Out;
use freshet_sql::{SqlError, SqlState};
use sqlparser::{
    ast::ObjectName,
    keywords::Keyword,
    parser::{Parser, ParserError},
};

use super::{Session, statement::Tag, utility::warning};
use crate::{
    bind::qualified,
    schema::{Deferral, Entry, Oid},
    syntax::is_word,
    system::constraint::of_table,
};

/// SET CONSTRAINTS.
#[derive(Clone, Debug)]
pub struct SetConstraints {
    /// The constraints; none for ALL.
    names: Vec<ObjectName>,
    /// Whether they are deferred from now on.
    deferred: bool,
}

impl SetConstraints {
    /// Reads it, if that is where a parser stands.
    ///
    /// # Errors
    /// When it is not whole.
    pub(super) fn parse(parser: &mut Parser<'_>) -> Result<Option<Self>, ParserError> {
        let [set, constraints] = parser.peek_tokens();
        if !is_word(&set, "set") || !is_word(&constraints, "constraints") {
            return Ok(None);
        }
        parser.advance_token();
        parser.advance_token();
        let names = match parser.parse_keyword(Keyword::ALL) {
            true => Vec::new(),
            false => parser.parse_comma_separated(|parser| parser.parse_object_name(false))?,
        };
        let mode = parser.expect_one_of_keywords(&[Keyword::DEFERRED, Keyword::IMMEDIATE])?;
        let deferred = mode == Keyword::DEFERRED;
        Ok(Some(Self { names, deferred }))
    }
}

impl Session<'_> {
    /// SET CONSTRAINTS. What is not deferred any more is looked at.
    ///
    /// # Errors
    /// 42704, 42809, and what is found to be wrong: 23503, 23505.
    pub(super) fn set_constraints(&mut self, set: &SetConstraints, out: &mut Out) -> Result<Tag, SqlError> {
        let block = self.block.as_ref().ok_or_else(|| SqlError::internal("a statement without a transaction"))?;
        if !block.explicit {
            let message = "SET CONSTRAINTS can only be used in transaction blocks";
            self.state.send_notice(out, &warning(SqlState::NO_ACTIVE_SQL_TRANSACTION, message));
        }
        if set.names.is_empty() {
            block.deferred.set_all(set.deferred);
        }
        let mut named = Vec::new();
        for name in &set.names {
            named.extend(self.constraints_named(name, set.deferred)?);
        }
        named.into_iter().for_each(|oid| block.deferred.set(oid, set.deferred));
        if !set.deferred {
            self.check_deferred(false)?;
        }
        Ok(Tag("SET CONSTRAINTS".to_owned()))
    }

    /// The deferrable constraints of this name, in the first schema of the path that has any of it.
    fn constraints_named(&self, name: &ObjectName, defer: bool) -> Result<Vec<Oid>, SqlError> {
        let (namespace, wanted) = qualified(name)?;
        let schema = &self.state.schema;
        let path = match &namespace {
            Some(name) => vec![schema.namespace(name).ok_or_else(|| {
                SqlError::new(SqlState::INVALID_SCHEMA_NAME, format!("schema \"{name}\" does not exist"))
            })?],
            None => self.state.path(),
        };
        for namespace in path {
            let (mut found, mut deferrable) = (false, Vec::new());
            for entry in schema.entries() {
                let Entry::Table(info) = entry else { continue };
                if info.table.namespace != namespace {
                    continue;
                }
                for constraint in of_table(&info.table).filter(|constraint| constraint.name() == wanted) {
                    found = true;
                    if constraint.deferral() != Deferral::Never {
                        deferrable.push(constraint.oid());
                    } else if defer {
                        let message = format!("constraint \"{wanted}\" is not deferrable");
                        return Err(SqlError::new(SqlState::WRONG_OBJECT_TYPE, message));
                    }
                }
            }
            if found {
                return Ok(deferrable);
            }
        }
        let message = format!("constraint \"{name}\" does not exist");
        Err(SqlError::new(SqlState::UNDEFINED_OBJECT, message))
    }

    /// Looks at what was deferred and no longer is, or, at the end of the transaction, at all of
    /// it.
    ///
    /// # Errors
    /// 23503, 23505, and what goes wrong in reading and waiting.
    pub(super) fn check_deferred(&self, all: bool) -> Result<(), SqlError> {
        let block = self.block.as_ref().ok_or_else(|| SqlError::internal("a check without a transaction"))?;
        if block.deferred.is_empty() {
            return Ok(());
        }
        let checks = block.deferred.take(all);
        if let (Some(transaction), true) = (&block.transaction, block.is_read_committed()) {
            transaction.refresh();
        }
        self.with_run(&checks, &[], &[], |run, checks| {
            run.check_deferred(checks)?;
            run.finish()
        })
    }
}
