//! Sequences, views, schemas; DROP and TRUNCATE.

use sqlparser::tokenizer::Token;

use super::{
    AlterSchema, AlterSequence, AlterTable, Comment, Commented, CreateSchema, CreateSequence, CreateView, Definition,
    Drop, DropKind, Name, RelationKind, RoleName, SequenceOptions, TableChange, Truncate,
    words::{Read, Words},
};

impl Words<'_, '_> {
    pub(super) fn create_sequence(&mut self) -> Read<Definition> {
        self.expect(&["create"])?;
        self.takes_any(&["global", "local", "unlogged"]);
        let temporary = self.takes_any(&["temp", "temporary"]).is_some();
        self.expect(&["sequence"])?;
        let if_not_exists = self.if_not_exists();
        let name = self.name()?;
        let mut options = SequenceOptions::default();
        self.sequence_options(&mut options)?;
        Ok(Definition::CreateSequence(CreateSequence { name, temporary, if_not_exists, options }))
    }

    pub(super) fn alter_sequence(&mut self) -> Read<Definition> {
        self.expect(&["alter", "sequence"])?;
        let if_exists = self.if_exists();
        let name = self.name()?;
        if self.sees(&["rename"]) || self.sees(&["set", "schema"]) || self.sees(&["owner", "to"]) {
            let changes = vec![self.change()?];
            return Ok(Definition::AlterTable(AlterTable { kind: RelationKind::Sequence, name, if_exists, changes }));
        }
        if self.takes(&["set"]) {
            if self.takes_any(&["logged", "unlogged"]).is_none() {
                return self.fail("an option of a sequence");
            }
            let changes = vec![TableChange::Storage];
            return Ok(Definition::AlterTable(AlterTable { kind: RelationKind::Sequence, name, if_exists, changes }));
        }
        let mut options = SequenceOptions::default();
        self.sequence_options(&mut options)?;
        Ok(Definition::AlterSequence(AlterSequence { name, if_exists, options }))
    }

    pub(super) fn sequence_options(&mut self, options: &mut SequenceOptions) -> Read<()> {
        while self.sequence_option(options)? {}
        Ok(())
    }

    /// Reads an option of a sequence if there is one.
    pub(super) fn sequence_option(&mut self, options: &mut SequenceOptions) -> Read<bool> {
        let mut twice = false;
        if self.takes(&["as"]) {
            twice = options.ty.replace(self.data_type()?).is_some();
        } else if self.takes(&["increment"]) {
            self.takes(&["by"]);
            twice = options.increment.replace(self.integer()?).is_some();
        } else if self.takes(&["minvalue"]) {
            twice = options.minimum.replace(Some(self.integer()?)).is_some();
        } else if self.takes(&["no", "minvalue"]) {
            twice = options.minimum.replace(None).is_some();
        } else if self.takes(&["maxvalue"]) {
            twice = options.maximum.replace(Some(self.integer()?)).is_some();
        } else if self.takes(&["no", "maxvalue"]) {
            twice = options.maximum.replace(None).is_some();
        } else if self.takes(&["start"]) {
            self.takes(&["with"]);
            twice = options.start.replace(self.integer()?).is_some();
        } else if self.takes(&["restart"]) {
            let with = self.takes(&["with"]);
            let number = matches!(self.parser.peek_token_ref().token, Token::Number(..) | Token::Minus | Token::Plus);
            let value = if with || number { Some(self.integer()?) } else { None };
            twice = options.restart.replace(value).is_some();
        } else if self.takes(&["cache"]) {
            twice = options.cache.replace(self.integer()?).is_some();
        } else if self.takes(&["cycle"]) {
            twice = options.cycle.replace(true).is_some();
        } else if self.takes(&["no", "cycle"]) {
            twice = options.cycle.replace(false).is_some();
        } else if self.takes(&["owned", "by"]) {
            let owner = if self.takes(&["none"]) { None } else { Some(self.column_name()?) };
            twice = options.owned_by.replace(owner).is_some();
        } else if self.takes(&["sequence", "name"]) {
            twice = options.name.replace(self.name()?).is_some();
        } else if !self.takes(&["logged"]) && !self.takes(&["unlogged"]) {
            return Ok(false);
        }
        if twice {
            return Err(sqlparser::parser::ParserError::ParserError("conflicting or redundant options".to_owned()));
        }
        Ok(true)
    }

    /// The name of a column with that of its table.
    fn column_name(&mut self) -> Read<(Name, String)> {
        let mut parts = vec![self.ident()?];
        while self.token(&Token::Period) {
            parts.push(self.ident()?);
        }
        match (parts.pop(), parts.pop()) {
            (Some(column), Some(table)) => {
                let schema = parts.pop();
                Ok((Name { database: parts.pop(), schema, name: table }, column))
            }
            _ => self.fail("a table and a column"),
        }
    }

    pub(super) fn create_view(&mut self) -> Read<Definition> {
        self.expect(&["create"])?;
        let or_replace = self.takes(&["or", "replace"]);
        self.takes_any(&["global", "local"]);
        let temporary = self.takes_any(&["temp", "temporary"]).is_some();
        let mut unsupported = self.takes(&["recursive"]).then_some("CREATE RECURSIVE VIEW");
        self.expect(&["view"])?;
        let name = self.name()?;
        let columns = if self.sees_token(&Token::LParen) { self.listed(Self::ident)? } else { Vec::new() };
        let options = if self.takes(&["with"]) { self.listed(Self::storage_option)? } else { Vec::new() };
        self.expect(&["as"])?;
        let query = crate::syntax::parse_query(self.parser)?;
        if self.takes(&["with"]) {
            self.takes_any(&["local", "cascaded"]);
            self.expect(&["check", "option"])?;
            unsupported = Some("WITH CHECK OPTION");
        }
        let view = CreateView { name, or_replace, temporary, columns, options, query, unsupported };
        Ok(Definition::CreateView(Box::new(view)))
    }

    pub(super) fn create_schema(&mut self) -> Read<Definition> {
        self.expect(&["create", "schema"])?;
        let if_not_exists = self.if_not_exists();
        let name = if self.sees(&["authorization"]) { None } else { Some(self.ident()?) };
        let owner = if self.takes(&["authorization"]) { Some(self.role()?) } else { None };
        if ["create", "grant"].iter().any(|word| self.sees(&[word])) {
            self.unsupported = Some("CREATE SCHEMA with objects in it");
            while !self.ends() {
                self.parser.advance_token();
            }
        }
        Ok(Definition::CreateSchema(CreateSchema { name, if_not_exists, owner }))
    }

    pub(super) fn alter_schema(&mut self) -> Read<Definition> {
        self.expect(&["alter", "schema"])?;
        let name = self.ident()?;
        let change = if self.takes(&["rename", "to"]) {
            AlterSchema::Rename(self.ident()?)
        } else {
            self.expect(&["owner", "to"])?;
            AlterSchema::Owner(self.role()?)
        };
        Ok(Definition::AlterSchema { name, change })
    }

    pub(super) fn drop(&mut self) -> Read<Definition> {
        self.expect(&["drop"])?;
        if self.takes(&["database"]) {
            return self.drop_database();
        }
        const KINDS: &[&str] =
            &["table", "view", "sequence", "index", "schema", "role", "user", "group", "owned", "extension"];
        let kind = match self.takes_any(KINDS) {
            Some("table") => DropKind::Relation(RelationKind::Table),
            Some("view") => DropKind::Relation(RelationKind::View),
            Some("sequence") => DropKind::Relation(RelationKind::Sequence),
            Some("index") => DropKind::Relation(RelationKind::Index),
            Some("schema") => DropKind::Schema,
            Some("owned") => DropKind::Owned,
            Some("extension") => DropKind::Extension,
            Some(_) => DropKind::Role,
            None => {
                let what = format!("DROP {}", self.parser.peek_token_ref().token.to_string().to_uppercase());
                while !self.ends() {
                    self.parser.advance_token();
                }
                return Ok(Definition::Unsupported(what));
            }
        };
        if kind == DropKind::Owned {
            self.expect(&["by"])?;
        }
        if kind == DropKind::Relation(RelationKind::Index) {
            self.takes(&["concurrently"]);
        }
        let if_exists = self.if_exists();
        let names = match kind {
            DropKind::Role | DropKind::Owned => self.list(|it| {
                let name = match it.role()? {
                    RoleName::Named(name) => name,
                    RoleName::Current => "current_user".to_owned(),
                    RoleName::Session => "session_user".to_owned(),
                    RoleName::Public => "public".to_owned(),
                };
                Ok(Name { database: None, schema: None, name })
            })?,
            DropKind::Extension => self.list(|it| Ok(Name { database: None, schema: None, name: it.ident()? }))?,
            _ => self.names()?,
        };
        let cascade = self.cascade();
        Ok(Definition::Drop(Drop { kind, names, if_exists, cascade }))
    }

    pub(super) fn comment(&mut self) -> Read<Definition> {
        self.expect(&["comment", "on"])?;
        const KINDS: &[&str] =
            &["table", "view", "sequence", "index", "column", "constraint", "schema", "database", "extension", "role"];
        let on = match self.takes_any(KINDS) {
            Some("table") => Commented::Relation(RelationKind::Table, self.name()?),
            Some("view") => Commented::Relation(RelationKind::View, self.name()?),
            Some("sequence") => Commented::Relation(RelationKind::Sequence, self.name()?),
            Some("index") => Commented::Relation(RelationKind::Index, self.name()?),
            Some("column") => {
                let (relation, column) = self.column_name()?;
                Commented::Column(relation, column)
            }
            Some("constraint") => {
                let constraint = self.ident()?;
                self.expect(&["on"])?;
                Commented::Constraint(constraint, self.name()?)
            }
            Some("schema") => Commented::Schema(self.ident()?),
            Some("database") => Commented::Database(self.ident()?),
            Some("extension") => Commented::Extension(self.ident()?),
            Some(_) => Commented::Role(self.ident()?),
            None => {
                let what = format!("COMMENT ON {}", self.parser.peek_token_ref().token.to_string().to_uppercase());
                while !self.ends() {
                    self.parser.advance_token();
                }
                return Ok(Definition::Unsupported(what));
            }
        };
        self.expect(&["is"])?;
        let text = if self.takes(&["null"]) { None } else { Some(self.string()?) };
        Ok(Definition::Comment(Comment { on, text }))
    }

    pub(super) fn truncate(&mut self) -> Read<Definition> {
        self.expect(&["truncate"])?;
        self.takes(&["table"]);
        let tables = self.list(|it| {
            it.takes(&["only"]);
            let name = it.name()?;
            it.token(&Token::Mul);
            Ok(name)
        })?;
        let restart = if self.takes(&["restart", "identity"]) {
            true
        } else {
            self.takes(&["continue", "identity"]);
            false
        };
        let cascade = self.cascade();
        Ok(Definition::Truncate(Truncate { tables, restart, cascade }))
    }
}
