//! CREATE, ALTER and DROP DATABASE.

use sqlparser::tokenizer::Token;

use super::{
    Definition, RoleName,
    words::{Read, Words},
};

/// CREATE DATABASE
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateDatabase {
    /// The name of the new database.
    pub name: String,
    /// What is said of it.
    pub options: Vec<DatabaseOption>,
}

/// An option of a database: its name in small letters, and its value; without one DEFAULT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseOption {
    /// The option's name, in small letters.
    pub name: String,
    /// The option's value; none for DEFAULT.
    pub value: Option<String>,
}

/// ALTER DATABASE, but SET and RESET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlterDatabase {
    /// RENAME TO
    Rename(String),
    /// OWNER TO
    Owner(RoleName),
    /// Options like CONNECTION LIMIT.
    Options(Vec<DatabaseOption>),
    /// SET TABLESPACE
    Tablespace(String),
    /// REFRESH COLLATION VERSION
    RefreshCollation,
}

impl Words<'_, '_> {
    pub(super) fn create_database(&mut self) -> Read<Definition> {
        self.expect(&["create", "database"])?;
        let name = self.ident()?;
        self.takes(&["with"]);
        Ok(Definition::CreateDatabase(CreateDatabase { name, options: self.database_options()? }))
    }

    fn database_options(&mut self) -> Read<Vec<DatabaseOption>> {
        let mut options = Vec::new();
        while !self.ends() {
            let name = if self.takes(&["connection", "limit"]) {
                "connection_limit".to_owned()
            } else {
                self.ident()?.to_ascii_lowercase()
            };
            self.token(&Token::Eq);
            let value = if self.takes(&["default"]) { None } else { Some(self.option_value()?) };
            options.push(DatabaseOption { name, value });
        }
        Ok(options)
    }

    fn option_value(&mut self) -> Read<String> {
        let negative = self.token(&Token::Minus);
        match self.parser.peek_token_ref().token.clone() {
            Token::Number(digits, _) => {
                self.parser.advance_token();
                Ok(if negative { format!("-{digits}") } else { digits })
            }
            Token::SingleQuotedString(text) if !negative => {
                self.parser.advance_token();
                Ok(text)
            }
            Token::Word(_) if !negative => self.ident(),
            _ => self.fail("the value of an option"),
        }
    }

    pub(super) fn alter_database(&mut self) -> Read<Definition> {
        self.expect(&["alter", "database"])?;
        let name = self.ident()?;
        let change = if self.takes(&["rename", "to"]) {
            AlterDatabase::Rename(self.ident()?)
        } else if self.takes(&["owner", "to"]) {
            AlterDatabase::Owner(self.role()?)
        } else if self.takes(&["set", "tablespace"]) {
            AlterDatabase::Tablespace(self.ident()?)
        } else if self.takes(&["refresh", "collation", "version"]) {
            AlterDatabase::RefreshCollation
        } else if self.sees(&["set"]) || self.sees(&["reset"]) {
            let change = self.setting_change()?;
            return Ok(Definition::AlterSetting { role: None, database: Some(name), change });
        } else {
            self.takes(&["with"]);
            AlterDatabase::Options(self.database_options()?)
        };
        Ok(Definition::AlterDatabase { name, change })
    }

    /// DROP DATABASE, after these words.
    pub(super) fn drop_database(&mut self) -> Read<Definition> {
        let if_exists = self.if_exists();
        let name = self.ident()?;
        let with = self.takes(&["with"]);
        let force = if with || self.sees_token(&Token::LParen) {
            self.listed(|it| it.expect(&["force"]))?;
            true
        } else {
            false
        };
        Ok(Definition::DropDatabase { name, if_exists, force })
    }
}
