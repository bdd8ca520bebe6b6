//! ALTER TABLE, and what of it other relations can do, too.

use sqlparser::{
    ast::{DataType, Expr},
    tokenizer::Token,
};

use super::{
    ColumnDefinition, Constraint, Definition, IdentityDefinition, Name, RelationKind, RoleName, SequenceOptions,
    words::{Read, Words},
};
use crate::schema::Deferral;

/// ALTER TABLE, VIEW, INDEX, SEQUENCE
#[derive(Clone, Debug, PartialEq)]
pub struct AlterTable {
    /// What the statement says that it is.
    pub kind: RelationKind,
    /// The name of the relation that changes.
    pub name: Name,
    /// IF EXISTS
    pub if_exists: bool,
    /// The changes, in their order.
    pub changes: Vec<TableChange>,
}

/// One change of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum TableChange {
    /// ADD COLUMN
    AddColumn {
        /// IF NOT EXISTS
        if_not_exists: bool,
        /// The new column.
        column: Box<ColumnDefinition>,
    },
    /// DROP COLUMN
    DropColumn {
        /// The column's name.
        name: String,
        /// IF EXISTS
        if_exists: bool,
        /// CASCADE
        cascade: bool,
    },
    /// ALTER COLUMN
    Column {
        /// The column's name.
        name: String,
        /// What changes of it.
        change: Box<ColumnChange>,
    },
    /// ADD a constraint
    AddConstraint(Box<Constraint>),
    /// DROP CONSTRAINT
    DropConstraint {
        /// The constraint's name.
        name: String,
        /// IF EXISTS
        if_exists: bool,
        /// CASCADE
        cascade: bool,
    },
    /// VALIDATE CONSTRAINT
    ValidateConstraint(String),
    /// ALTER CONSTRAINT
    AlterConstraint(String, Deferral),
    /// RENAME COLUMN
    RenameColumn(String, String),
    /// RENAME CONSTRAINT
    RenameConstraint(String, String),
    /// RENAME TO
    Rename(String),
    /// OWNER TO
    Owner(RoleName),
    /// SET SCHEMA
    Schema(String),
    /// Something about how it is stored, which makes no difference here.
    Storage,
    /// SET (…) or, if it is not `set`, RESET (…)
    Options {
        /// SET, not RESET.
        set: bool,
        /// The storage parameters.
        options: Vec<super::StorageOption>,
    },
    /// Something that is not offered.
    Unsupported(&'static str),
}

/// One change of a column.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnChange {
    /// TYPE, USING
    Type(DataType, Option<Expr>),
    /// SET DEFAULT, DROP DEFAULT
    Default(Option<Expr>),
    /// SET NOT NULL, DROP NOT NULL
    NotNull(bool),
    /// ADD GENERATED
    AddIdentity(IdentityDefinition),
    /// SET GENERATED, and options of its sequence
    SetIdentity(Option<bool>, Box<SequenceOptions>),
    /// DROP IDENTITY
    DropIdentity {
        /// IF EXISTS
        if_exists: bool,
    },
    /// Something about how it is stored.
    Storage,
}

impl Words<'_, '_> {
    pub(super) fn alter_table(&mut self) -> Read<Definition> {
        self.expect(&["alter"])?;
        let kind = match self.takes_any(&["table", "index", "view"]) {
            Some("table") => RelationKind::Table,
            Some("index") => RelationKind::Index,
            _ => {
                self.takes(&["view"]);
                RelationKind::View
            }
        };
        let if_exists = self.if_exists();
        self.takes(&["only"]);
        let name = self.name()?;
        self.token(&Token::Mul);
        let changes = self.list(Self::change)?;
        Ok(Definition::AlterTable(AlterTable { kind, name, if_exists, changes }))
    }

    pub(super) fn change(&mut self) -> Read<TableChange> {
        if self.takes(&["add"]) {
            if self.begins_constraint() {
                return Ok(TableChange::AddConstraint(Box::new(self.table_constraint()?)));
            }
            self.takes(&["column"]);
            let if_not_exists = self.if_not_exists();
            return Ok(TableChange::AddColumn { if_not_exists, column: Box::new(self.column()?) });
        }
        if self.takes(&["drop"]) {
            let constraint = self.takes(&["constraint"]);
            if !constraint {
                self.takes(&["column"]);
            }
            let if_exists = self.if_exists();
            let name = self.ident()?;
            let cascade = self.cascade();
            return Ok(match constraint {
                true => TableChange::DropConstraint { name, if_exists, cascade },
                false => TableChange::DropColumn { name, if_exists, cascade },
            });
        }
        if self.takes(&["alter", "constraint"]) {
            let name = self.ident()?;
            return Ok(TableChange::AlterConstraint(name, self.altered_deferral()?));
        }
        if self.takes(&["alter"]) {
            self.takes(&["column"]);
            let name = self.ident()?;
            return Ok(TableChange::Column { name, change: Box::new(self.column_change()?) });
        }
        if self.takes(&["validate", "constraint"]) {
            return self.ident().map(TableChange::ValidateConstraint);
        }
        if self.takes(&["rename", "to"]) {
            return self.ident().map(TableChange::Rename);
        }
        if self.takes(&["rename", "constraint"]) {
            let old = self.ident()?;
            self.expect(&["to"])?;
            return Ok(TableChange::RenameConstraint(old, self.ident()?));
        }
        if self.takes(&["rename"]) {
            self.takes(&["column"]);
            let old = self.ident()?;
            self.expect(&["to"])?;
            return Ok(TableChange::RenameColumn(old, self.ident()?));
        }
        if self.takes(&["owner", "to"]) {
            return self.role().map(TableChange::Owner);
        }
        if self.takes(&["set", "schema"]) {
            return self.ident().map(TableChange::Schema);
        }
        if self.takes(&["set", "logged"])
            || self.takes(&["set", "without", "cluster"])
            || self.takes(&["set", "without", "oids"])
        {
            return Ok(TableChange::Storage);
        }
        if self.takes(&["set", "tablespace"]) || self.takes(&["cluster", "on"]) {
            self.ident()?;
            return Ok(TableChange::Storage);
        }
        if let Some(way) = self.takes_any(&["set", "reset"]) {
            if self.takes(&["unlogged"]) {
                return Ok(TableChange::Unsupported("SET UNLOGGED"));
            }
            return Ok(TableChange::Options { set: way == "set", options: self.listed(Self::storage_option)? });
        }
        if self.takes(&["replica", "identity"]) {
            if self.takes(&["using", "index"]) {
                self.ident()?;
            } else if self.takes_any(&["full", "default", "nothing"]).is_none() {
                return self.fail("FULL, DEFAULT, NOTHING or USING INDEX");
            }
            // Standbys replay records by their ids, whatever the keys.
            return Ok(TableChange::Storage);
        }
        for (word, what) in [
            ("inherit", "INHERIT"),
            ("no", "NO INHERIT"),
            ("attach", "ATTACH PARTITION"),
            ("detach", "DETACH PARTITION"),
            ("enable", "ENABLE of triggers, rules and row security"),
            ("disable", "DISABLE of triggers, rules and row security"),
            ("force", "FORCE ROW LEVEL SECURITY"),
        ] {
            if self.takes(&[word]) {
                while !self.ends() && !self.sees_token(&Token::Comma) {
                    self.parser.advance_token();
                }
                return Ok(TableChange::Unsupported(what));
            }
        }
        self.fail("a change of the table")
    }

    fn column_change(&mut self) -> Read<ColumnChange> {
        if self.takes(&["type"]) || self.takes(&["set", "data", "type"]) {
            let ty = self.data_type()?;
            if self.takes(&["collate"]) {
                self.name()?;
            }
            let using = if self.takes(&["using"]) { Some(crate::syntax::parse_expression(self.parser)?) } else { None };
            return Ok(ColumnChange::Type(ty, using));
        }
        if self.takes(&["set", "default"]) {
            return crate::syntax::parse_expression(self.parser).map(|value| ColumnChange::Default(Some(value)));
        }
        if self.takes(&["drop", "default"]) {
            return Ok(ColumnChange::Default(None));
        }
        if self.takes(&["set", "not", "null"]) {
            return Ok(ColumnChange::NotNull(true));
        }
        if self.takes(&["drop", "not", "null"]) {
            return Ok(ColumnChange::NotNull(false));
        }
        if self.takes(&["add", "generated"]) {
            return match self.identity()? {
                Some(identity) => Ok(ColumnChange::AddIdentity(identity)),
                None => Ok(ColumnChange::Storage),
            };
        }
        if self.takes(&["drop", "identity"]) {
            return Ok(ColumnChange::DropIdentity { if_exists: self.if_exists() });
        }
        if self.takes(&["set", "statistics"]) {
            self.integer()?;
            return Ok(ColumnChange::Storage);
        }
        if self.takes(&["set", "storage"]) || self.takes(&["set", "compression"]) {
            self.ident()?;
            return Ok(ColumnChange::Storage);
        }
        if self.takes(&["reset"])
            || self.sees(&["set"]) && matches!(self.parser.peek_nth_token_ref(1).token, Token::LParen)
        {
            self.takes(&["set"]);
            self.parentheses()?;
            return Ok(ColumnChange::Storage);
        }
        let (mut always, mut options, mut any) = (None, SequenceOptions::default(), false);
        loop {
            if self.takes(&["set", "generated"]) {
                always = Some(self.generated()?);
            } else if self.takes(&["set"]) || self.sees(&["restart"]) {
                if !self.sequence_option(&mut options)? {
                    return self.fail("an option of a sequence");
                }
            } else {
                break;
            }
            any = true;
        }
        if any { Ok(ColumnChange::SetIdentity(always, Box::new(options))) } else { self.fail("a change of the column") }
    }
}
