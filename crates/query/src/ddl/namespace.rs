//! Schemas.

use freshet_sql::SqlState;

use super::{
    syntax::{AlterSchema, CreateSchema},
    work::{Step, Work, check_name, error, is_system},
};
use crate::schema::{Namespace, Object, change_owner, privilege};

impl Work<'_, '_, '_> {
    pub(super) fn create_schema(&mut self, statement: &CreateSchema) -> Step<&'static str> {
        self.check_makes_schemas()?;
        let owner = match &statement.owner {
            Some(owner) => self.role(owner)?,
            None => self.ddl.role,
        };
        self.check_new_owner(owner)?;
        let name = match &statement.name {
            Some(name) => name.clone(),
            None => self.schema().role_by_oid(owner).map(|role| role.name.clone()).unwrap_or_default(),
        };
        self.check_schema_name(&name)?;
        if self.schema().namespace(&name).is_some() {
            let message = format!("schema \"{name}\" already exists");
            if !statement.if_not_exists {
                return Err(error(SqlState::DUPLICATE_SCHEMA, message).into());
            }
            self.notice(SqlState::DUPLICATE_SCHEMA, message + ", skipping");
            return Ok("CREATE SCHEMA");
        }
        let oid = self.change.take_oid()?;
        self.put(Object::Namespace(Namespace { oid, name, owner, grants: Vec::new() }))?;
        Ok("CREATE SCHEMA")
    }

    /// Fails unless the role may make schemas in the database.
    fn check_makes_schemas(&self) -> Result<(), freshet_sql::SqlError> {
        let Some(database) = self.schema().database() else { return Ok(()) };
        self.check_grant(database.owner, &database.grants, privilege::CREATE, "database", &database.name)
    }

    fn check_schema_name(&self, name: &str) -> Result<(), freshet_sql::SqlError> {
        check_name(name)?;
        if name.starts_with("pg_") || is_system(name) {
            let refused = error(SqlState::RESERVED_NAME, format!("unacceptable schema name \"{name}\""));
            return Err(refused.with_detail("The prefix \"pg_\" is reserved for system schemas."));
        }
        Ok(())
    }

    pub(super) fn alter_schema(&mut self, name: &str, change: &AlterSchema) -> Step<&'static str> {
        let oid = self.namespace(name)?;
        let missing = || freshet_sql::SqlError::internal("a schema is named and is not there");
        let mut namespace = (**self.schema().namespace_by_oid(oid).ok_or_else(missing)?).clone();
        self.check_owner(namespace.owner, "schema", name)?;
        match change {
            AlterSchema::Rename(new) => {
                self.check_makes_schemas()?;
                self.check_schema_name(new)?;
                if self.schema().namespace(new).is_some() {
                    let message = format!("schema \"{new}\" already exists");
                    return Err(error(SqlState::DUPLICATE_SCHEMA, message).into());
                }
                namespace.name.clone_from(new);
                self.put(Object::Namespace(namespace))?;
                self.rename_in_views(|namespace, _| namespace == oid, None, Some((name, new)))?;
            }
            AlterSchema::Owner(owner) => {
                let owner = self.role(owner)?;
                self.check_new_owner(owner)?;
                self.check_makes_schemas()?;
                change_owner(&mut namespace.owner, &mut namespace.grants, owner);
                self.put(Object::Namespace(namespace))?;
            }
        }
        Ok("ALTER SCHEMA")
    }
}
