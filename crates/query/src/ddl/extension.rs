//! Extensions.

use std::sync::Arc;

use freshet_sql::{SqlError, SqlState};

use super::{
    dependency::Target,
    syntax::{AlterExtension, CreateExtension},
    work::{Step, Work, error},
};
use crate::schema::{Extension, Object, Oid, PG_CATALOG, extension::Available, privilege};

fn missing(name: &str) -> SqlError {
    error(SqlState::UNDEFINED_OBJECT, format!("extension \"{name}\" does not exist"))
}

/// The extension of this name, which can be had.
fn available(name: &str) -> Result<&'static Available, SqlError> {
    Available::named(name).ok_or_else(|| {
        let refused = error(SqlState::FEATURE_NOT_SUPPORTED, format!("extension \"{name}\" is not available"));
        refused.with_hint("The extensions that can be had are in pg_available_extensions.")
    })
}

impl Work<'_, '_, '_> {
    /// The extension of this name, which must be there.
    pub(super) fn extension(&self, name: &str) -> Result<Arc<Extension>, SqlError> {
        self.schema().extension(name).cloned().ok_or_else(|| missing(name))
    }

    /// CREATE EXTENSION
    pub(super) fn create_extension(&mut self, statement: &CreateExtension) -> Step<&'static str> {
        let name = &statement.name;
        if self.schema().extension(name).is_some() {
            let message = format!("extension \"{name}\" already exists");
            if !statement.if_not_exists {
                return Err(error(SqlState::DUPLICATE_OBJECT, message).into());
            }
            self.notice(SqlState::DUPLICATE_OBJECT, message + ", skipping");
            return Ok("CREATE EXTENSION");
        }
        let available = available(name)?;
        if let Some(version) = statement.version.as_deref().filter(|version| *version != available.version) {
            let message =
                format!("extension \"{name}\" has no installation script nor update path for version \"{version}\"");
            return Err(error(SqlState::INVALID_PARAMETER_VALUE, message).into());
        }
        let namespace = self.namespace_of_extension(available, statement.schema.as_deref())?;
        self.check_makes_extensions(name)?;
        let extension = Extension { oid: self.change.take_oid()?, name: name.clone(), owner: self.ddl.role, namespace };
        let oid = extension.oid;
        self.put(Object::Extension(extension))?;
        self.set_comment((oid, None, false), Some(available.comment))?;
        Ok("CREATE EXTENSION")
    }

    /// Fails unless the role may make extensions in the database.
    fn check_makes_extensions(&self, name: &str) -> Result<(), SqlError> {
        let Some(database) = self.schema().database() else { return Ok(()) };
        let may = self.schema().privileges(self.ddl.role, database.owner, &database.grants);
        if may & privilege::CREATE != 0 {
            return Ok(());
        }
        let message = format!("permission denied to create extension \"{name}\"");
        let hint = "Must have CREATE privilege on current database to create this extension.";
        Err(error(SqlState::INSUFFICIENT_PRIVILEGE, message).with_hint(hint))
    }

    /// The schema that an extension is put into, by its name or as the search path says. The role
    /// needs no privilege on it: nothing is made there.
    fn namespace_of_extension(&self, available: &Available, schema: Option<&str>) -> Result<Oid, SqlError> {
        let named = schema.map(|name| self.any_namespace(name)).transpose()?;
        match named {
            Some(oid) if available.system && oid != PG_CATALOG => {
                let message = format!("extension \"{}\" must be installed in schema \"pg_catalog\"", available.name);
                Err(error(SqlState::FEATURE_NOT_SUPPORTED, message))
            }
            Some(oid) => Ok(oid),
            None if available.system => Ok(PG_CATALOG),
            None => self.first_namespace(),
        }
    }

    /// The schema of a name, `pg_catalog` too.
    fn any_namespace(&self, name: &str) -> Result<Oid, SqlError> {
        if name == self.schema().namespace_name(PG_CATALOG) { Ok(PG_CATALOG) } else { self.namespace(name) }
    }

    /// ALTER EXTENSION
    pub(super) fn alter_extension(&mut self, name: &str, change: &AlterExtension) -> Step<&'static str> {
        let extension = self.extension(name)?;
        self.check_owner(extension.owner, "extension", name)?;
        let available = available(name)?;
        match change {
            AlterExtension::Update(version) => {
                let (known, wanted) = (available.version, version.as_deref().unwrap_or(available.version));
                if wanted != known {
                    let message = format!(
                        "extension \"{name}\" has no update path from version \"{known}\" to version \"{wanted}\""
                    );
                    return Err(error(SqlState::INVALID_PARAMETER_VALUE, message).into());
                }
                let message = format!("version \"{known}\" of extension \"{name}\" is already installed");
                self.notice(SqlState::SUCCESSFUL_COMPLETION, message);
            }
            AlterExtension::Schema(schema) => {
                let namespace = self.any_namespace(schema)?;
                if namespace != PG_CATALOG {
                    self.check_namespace(namespace, privilege::CREATE)?;
                } else if !self.is_superuser() {
                    return Err(crate::schema::denied("schema", schema).into());
                }
                if available.system {
                    let message = format!("extension \"{name}\" does not support SET SCHEMA");
                    return Err(error(SqlState::FEATURE_NOT_SUPPORTED, message).into());
                }
                self.put(Object::Extension(Extension { namespace, ..(*extension).clone() }))?;
            }
        }
        Ok("ALTER EXTENSION")
    }

    pub(super) fn extension_to_drop(&mut self, name: &str, if_exists: bool) -> Result<Option<Target>, SqlError> {
        let Some(extension) = self.schema().extension(name).cloned() else {
            if !if_exists {
                return Err(missing(name));
            }
            self.notice(SqlState::SUCCESSFUL_COMPLETION, format!("{}, skipping", missing(name).message));
            return Ok(None);
        };
        self.check_owner(extension.owner, "extension", name)?;
        Ok(Some(Target::Extension(extension.oid)))
    }
}
