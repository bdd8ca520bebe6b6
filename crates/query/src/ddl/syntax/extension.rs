//! CREATE and ALTER EXTENSION.

use sqlparser::tokenizer::Token;

use super::{
    Definition,
    words::{Read, Words},
};

/// CREATE EXTENSION
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateExtension {
    /// The name of the extension.
    pub name: String,
    /// IF NOT EXISTS
    pub if_not_exists: bool,
    /// SCHEMA
    pub schema: Option<String>,
    /// VERSION
    pub version: Option<String>,
}

/// ALTER EXTENSION
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlterExtension {
    /// UPDATE, TO which version
    Update(Option<String>),
    /// SET SCHEMA
    Schema(String),
}

impl Words<'_, '_> {
    pub(super) fn create_extension(&mut self) -> Read<Definition> {
        self.expect(&["create", "extension"])?;
        let if_not_exists = self.if_not_exists();
        let mut extension = CreateExtension { name: self.ident()?, if_not_exists, ..CreateExtension::default() };
        self.takes(&["with"]);
        // None depends on others that CASCADE would make.
        let mut cascade = false;
        while !self.ends() {
            if extension.schema.is_none() && self.takes(&["schema"]) {
                extension.schema = Some(self.ident()?);
            } else if extension.version.is_none() && self.takes(&["version"]) {
                extension.version = Some(self.extension_version()?);
            } else if !cascade && self.takes(&["cascade"]) {
                cascade = true;
            } else {
                return self.fail("SCHEMA, VERSION or CASCADE, once");
            }
        }
        Ok(Definition::CreateExtension(extension))
    }

    /// A word or a text.
    fn extension_version(&mut self) -> Read<String> {
        match self.parser.peek_token_ref().token {
            Token::SingleQuotedString(_) | Token::DollarQuotedString(_) => self.string(),
            _ => self.ident(),
        }
    }

    pub(super) fn alter_extension(&mut self) -> Read<Definition> {
        self.expect(&["alter", "extension"])?;
        let name = self.ident()?;
        let change = if self.takes(&["update"]) {
            let version = if self.takes(&["to"]) { Some(self.extension_version()?) } else { None };
            AlterExtension::Update(version)
        } else if self.takes(&["set", "schema"]) {
            AlterExtension::Schema(self.ident()?)
        } else if self.sees(&["add"]) || self.sees(&["drop"]) {
            self.rest();
            return Ok(Definition::Unsupported("ALTER EXTENSION ... ADD and DROP".to_owned()));
        } else {
            return self.fail("UPDATE or SET SCHEMA");
        };
        Ok(Definition::AlterExtension { name, change })
    }
}
