//! CREATE TABLE and CREATE INDEX.

use sqlparser::{
    ast::{Expr, ReferentialAction},
    tokenizer::Token,
};

use super::{
    ColumnDefinition, Constraint, ConstraintKind, CreateIndex, CreateTable, CreateTableAs, Definition,
    IdentityDefinition, IndexElement, Indexed, LikeOptions, Name, Persistence, SequenceOptions, TableElement,
    words::{Read, Words},
};
use crate::schema::Deferral;

impl Words<'_, '_> {
    pub(super) fn create_table(&mut self) -> Read<Definition> {
        self.expect(&["create"])?;
        self.takes_any(&["global", "local"]);
        let persistence = match self.takes_any(&["temp", "temporary", "unlogged"]) {
            None => Persistence::Permanent,
            Some("unlogged") => Persistence::Unlogged,
            Some(_) => Persistence::Temporary,
        };
        self.expect(&["table"])?;
        let if_not_exists = self.if_not_exists();
        let name = self.name()?;
        if self.sees(&["as"]) || self.names_columns_only() {
            return self.create_table_as(name, persistence, if_not_exists);
        }
        let mut unsupported = None;
        if self.sees(&["partition", "of"]) {
            unsupported = Some("PARTITION OF");
            self.takes(&["partition", "of"]);
            self.name()?;
            while !self.ends() {
                self.parser.advance_token();
            }
            let elements = Vec::new();
            let table = CreateTable { name, persistence, if_not_exists, elements, unsupported };
            return Ok(Definition::CreateTable(Box::new(table)));
        }
        if self.sees(&["of"]) {
            return self.fail("columns in parentheses");
        }
        self.expect_token(&Token::LParen)?;
        let mut elements = Vec::new();
        if !self.token(&Token::RParen) {
            elements = self.list(Self::element)?;
            self.expect_token(&Token::RParen)?;
        }
        loop {
            if self.takes(&["inherits"]) {
                if self.parentheses_or_empty()? {
                    unsupported = Some("inheritance");
                }
            } else if self.takes(&["partition", "by"]) {
                unsupported = Some("partitioning");
                self.ident()?;
                self.parentheses()?;
            } else if self.takes(&["using"]) || self.takes(&["tablespace"]) {
                self.ident()?;
            } else if self.takes(&["with"]) {
                self.parentheses()?;
            } else if self.takes(&["without", "oids"]) {
            } else if self.takes(&["on", "commit"]) {
                if self.takes(&["preserve", "rows"]) {
                } else if self.takes(&["delete", "rows"]) || self.takes(&["drop"]) {
                    unsupported = Some("ON COMMIT DELETE ROWS and ON COMMIT DROP");
                } else {
                    return self.fail("PRESERVE ROWS, DELETE ROWS or DROP");
                }
            } else {
                break;
            }
        }
        if self.sees(&["as"]) {
            return self.fail("end of statement");
        }
        let table = CreateTable { name, persistence, if_not_exists, elements, unsupported };
        Ok(Definition::CreateTable(Box::new(table)))
    }

    /// Whether what stands in parentheses are names without types, as only CREATE TABLE AS has
    /// them.
    fn names_columns_only(&self) -> bool {
        let token = |at| &self.parser.peek_nth_token_ref(at).token;
        matches!(token(0), Token::LParen)
            && matches!(token(1), Token::Word(_))
            && matches!(token(2), Token::Comma | Token::RParen)
    }

    fn parentheses_or_empty(&mut self) -> Read<bool> {
        let empty = matches!(self.parser.peek_nth_token_ref(1).token, Token::RParen);
        self.parentheses()?;
        Ok(!empty)
    }

    fn create_table_as(
        &mut self,
        name: super::Name,
        persistence: Persistence,
        if_not_exists: bool,
    ) -> Read<Definition> {
        let columns = if self.sees_token(&Token::LParen) { self.listed(Self::ident)? } else { Vec::new() };
        loop {
            if self.takes(&["with"]) {
                self.parentheses()?;
            } else if self.takes(&["using"]) || self.takes(&["tablespace"]) {
                self.ident()?;
            } else {
                break;
            }
        }
        self.expect(&["as"])?;
        let query = crate::syntax::parse_query(self.parser)?;
        let with_data = if self.takes(&["with", "no", "data"]) {
            false
        } else {
            self.takes(&["with", "data"]);
            true
        };
        let table = CreateTableAs { name, persistence, if_not_exists, columns, query, with_data };
        Ok(Definition::CreateTableAs(Box::new(table)))
    }

    fn element(&mut self) -> Read<TableElement> {
        if self.takes(&["like"]) {
            let name = self.name()?;
            let mut options = LikeOptions::default();
            while let Some(way) = self.takes_any(&["including", "excluding"]) {
                let on = way == "including";
                match self.takes_any(&[
                    "all",
                    "defaults",
                    "constraints",
                    "identity",
                    "indexes",
                    "comments",
                    "compression",
                    "generated",
                    "statistics",
                    "storage",
                ]) {
                    Some("all") => options = LikeOptions { defaults: on, constraints: on, identity: on, indexes: on },
                    Some("defaults") => options.defaults = on,
                    Some("constraints") => options.constraints = on,
                    Some("identity") => options.identity = on,
                    Some("indexes") => options.indexes = on,
                    Some(_) => {}
                    None => return self.fail("what to include"),
                }
            }
            return Ok(TableElement::Like(name, options));
        }
        if self.begins_constraint() {
            return self.table_constraint().map(TableElement::Constraint);
        }
        Ok(TableElement::Column(Box::new(self.column()?)))
    }

    pub(super) fn begins_constraint(&self) -> bool {
        self.sees(&["constraint"])
            || self.sees(&["primary", "key"])
            || self.sees(&["foreign", "key"])
            || self.sees(&["exclude", "using"])
            || ["unique", "check"].iter().any(|word| self.sees(&[word]))
                && (matches!(self.parser.peek_nth_token_ref(1).token, Token::LParen)
                    || self.sees(&["unique", "using"])
                    || self.sees(&["unique", "nulls"]))
    }

    pub(super) fn table_constraint(&mut self) -> Read<Constraint> {
        let name = if self.takes(&["constraint"]) { Some(self.ident()?) } else { None };
        let mut include = Vec::new();
        let kind = if self.takes(&["primary", "key"]) {
            if self.takes(&["using", "index"]) {
                ConstraintKind::UsingIndex { primary: true, index: self.ident()? }
            } else {
                let columns = self.listed(Self::ident)?;
                include = self.index_parameters()?;
                ConstraintKind::PrimaryKey(columns)
            }
        } else if self.takes(&["unique"]) {
            if self.takes(&["using", "index"]) {
                ConstraintKind::UsingIndex { primary: false, index: self.ident()? }
            } else {
                let nulls_not_distinct = self.nulls_not_distinct()?;
                let columns = self.listed(Self::ident)?;
                include = self.index_parameters()?;
                ConstraintKind::Unique { columns, nulls_not_distinct }
            }
        } else if self.takes(&["check"]) {
            self.check()?
        } else if self.takes(&["foreign", "key"]) {
            let columns = self.listed(Self::ident)?;
            self.expect(&["references"])?;
            self.references(columns)?
        } else if self.takes(&["exclude", "using"]) {
            self.unsupported = Some("an exclusion constraint");
            self.ident()?;
            self.parentheses()?;
            if self.takes(&["where"]) {
                self.parentheses()?;
            }
            ConstraintKind::PrimaryKey(Vec::new())
        } else {
            return self.fail("PRIMARY KEY, UNIQUE, CHECK or FOREIGN KEY");
        };
        let mut constraint = Constraint { name, kind, not_valid: false, deferral: Deferral::Never, include };
        self.characteristics(&mut constraint, false)?;
        Ok(constraint)
    }

    fn nulls_not_distinct(&mut self) -> Read<bool> {
        if !self.takes(&["nulls"]) {
            return Ok(false);
        }
        let not = self.takes(&["not"]);
        self.expect(&["distinct"])?;
        Ok(not)
    }

    /// What may follow the columns of a constraint that has an index. Returns those of INCLUDE.
    fn index_parameters(&mut self) -> Read<Vec<String>> {
        let include = if self.takes(&["include"]) { self.listed(Self::ident)? } else { Vec::new() };
        if self.takes(&["with"]) {
            self.parentheses()?;
        }
        if self.takes(&["using", "index", "tablespace"]) {
            self.ident()?;
        }
        Ok(include)
    }

    fn check(&mut self) -> Read<ConstraintKind> {
        self.expect_token(&Token::LParen)?;
        let condition = crate::syntax::parse_expression(self.parser)?;
        self.expect_token(&Token::RParen)?;
        self.takes(&["no", "inherit"]);
        Ok(ConstraintKind::Check(Box::new(condition)))
    }

    fn references(&mut self, columns: Vec<String>) -> Read<ConstraintKind> {
        let parent = self.name()?;
        let parent_columns = if self.sees_token(&Token::LParen) { self.listed(Self::ident)? } else { Vec::new() };
        let (mut on_delete, mut on_update, mut unusual_match) = (None, None, false);
        loop {
            if self.takes(&["match"]) {
                unusual_match = self.takes_any(&["full", "partial", "simple"]) != Some("simple");
            } else if self.takes(&["on", "delete"]) {
                on_delete = Some(self.action()?);
            } else if self.takes(&["on", "update"]) {
                on_update = Some(self.action()?);
            } else {
                break;
            }
        }
        Ok(ConstraintKind::ForeignKey { columns, parent, parent_columns, on_delete, on_update, unusual_match })
    }

    fn action(&mut self) -> Read<ReferentialAction> {
        Ok(if self.takes(&["no", "action"]) {
            ReferentialAction::NoAction
        } else if self.takes(&["restrict"]) {
            ReferentialAction::Restrict
        } else if self.takes(&["cascade"]) {
            ReferentialAction::Cascade
        } else if self.takes(&["set", "null"]) {
            ReferentialAction::SetNull
        } else if self.takes(&["set", "default"]) {
            ReferentialAction::SetDefault
        } else {
            return self.fail("NO ACTION, RESTRICT, CASCADE, SET NULL or SET DEFAULT");
        })
    }

    /// What follows a constraint of a table, or of a column.
    fn characteristics(&mut self, constraint: &mut Constraint, of_column: bool) -> Read<()> {
        let (mut deferrable, mut deferred) = (None, None);
        loop {
            if self.deferral(&mut deferrable, &mut deferred, of_column)? {
            } else if self.takes(&["not", "valid"]) {
                constraint.not_valid = true;
            } else {
                break;
            }
        }
        if matches!(constraint.kind, ConstraintKind::Check(_)) && of_column {
            self.once(deferrable.is_none() && deferred.is_none(), "misplaced DEFERRABLE clause")?;
        }
        constraint.deferral = self.deferred(deferrable, deferred)?;
        Ok(())
    }

    /// One of the words about when a constraint is checked, which may be said but `once`.
    fn deferral(&mut self, deferrable: &mut Option<bool>, deferred: &mut Option<bool>, once: bool) -> Read<bool> {
        let (which, value, twice) = if self.takes(&["not", "deferrable"]) {
            (deferrable, false, "multiple DEFERRABLE/NOT DEFERRABLE clauses not allowed")
        } else if self.takes(&["deferrable"]) {
            (deferrable, true, "multiple DEFERRABLE/NOT DEFERRABLE clauses not allowed")
        } else if self.takes(&["initially", "immediate"]) {
            (deferred, false, "multiple INITIALLY IMMEDIATE/DEFERRED clauses not allowed")
        } else if self.takes(&["initially", "deferred"]) {
            (deferred, true, "multiple INITIALLY IMMEDIATE/DEFERRED clauses not allowed")
        } else {
            return Ok(false);
        };
        self.once(which.is_none() || !once && *which == Some(value), twice)?;
        *which = Some(value);
        Ok(true)
    }

    fn deferred(&self, deferrable: Option<bool>, deferred: Option<bool>) -> Read<Deferral> {
        Ok(match (deferrable, deferred) {
            (Some(false), Some(true)) => {
                self.once(false, "constraint declared INITIALLY DEFERRED must be DEFERRABLE")?;
                Deferral::Never
            }
            (_, Some(true)) => Deferral::Deferred,
            (Some(true), _) => Deferral::Immediate,
            (None | Some(false), _) => Deferral::Never,
        })
    }

    /// What follows ALTER CONSTRAINT and the name.
    pub(super) fn altered_deferral(&mut self) -> Read<Deferral> {
        let (mut deferrable, mut deferred) = (None, None);
        while self.deferral(&mut deferrable, &mut deferred, false)? {}
        self.deferred(deferrable, deferred)
    }

    /// A column's name, type and constraints.
    pub(super) fn column(&mut self) -> Read<ColumnDefinition> {
        let name = self.ident()?;
        let ty = self.data_type()?;
        let mut column =
            ColumnDefinition { name, ty, not_null: None, default: None, identity: None, constraints: Vec::new() };
        loop {
            let name = if self.takes(&["constraint"]) { Some(self.ident()?) } else { None };
            let mut include = Vec::new();
            let kind = if self.takes(&["not", "null"]) {
                self.once(column.not_null != Some(false), "conflicting NULL/NOT NULL declarations")?;
                column.not_null = Some(true);
                continue;
            } else if self.takes(&["null"]) {
                self.once(column.not_null != Some(true), "conflicting NULL/NOT NULL declarations")?;
                column.not_null = Some(false);
                continue;
            } else if self.takes(&["default"]) {
                self.once(column.default.is_none(), "multiple default values specified")?;
                column.default = Some(self.default()?);
                continue;
            } else if self.takes(&["collate"]) {
                // There is one collation, by bytes.
                let collation = self.name()?;
                if !matches!(collation.name.to_ascii_lowercase().as_str(), "c" | "posix" | "default" | "ucs_basic") {
                    return self.fail("collation \"C\": there is no other");
                }
                continue;
            } else if self.takes(&["storage"]) || self.takes(&["compression"]) {
                self.ident()?;
                continue;
            } else if self.takes(&["generated"]) {
                self.once(column.identity.is_none(), "multiple identity specifications")?;
                column.identity = self.identity()?;
                continue;
            } else if self.takes(&["primary", "key"]) {
                include = self.index_parameters()?;
                ConstraintKind::PrimaryKey(vec![column.name.clone()])
            } else if self.takes(&["unique"]) {
                let nulls_not_distinct = self.nulls_not_distinct()?;
                include = self.index_parameters()?;
                ConstraintKind::Unique { columns: vec![column.name.clone()], nulls_not_distinct }
            } else if self.takes(&["check"]) {
                self.check()?
            } else if self.takes(&["references"]) {
                self.references(vec![column.name.clone()])?
            } else if name.is_some() {
                return self.fail("a constraint");
            } else {
                return Ok(column);
            };
            let mut constraint = Constraint { name, kind, not_valid: false, deferral: Deferral::Never, include };
            self.characteristics(&mut constraint, true)?;
            column.constraints.push(constraint);
        }
    }

    fn once(&self, fine: bool, otherwise: &str) -> Read<()> {
        if fine { Ok(()) } else { Err(sqlparser::parser::ParserError::ParserError(otherwise.to_owned())) }
    }

    /// What follows GENERATED.
    pub(super) fn identity(&mut self) -> Read<Option<IdentityDefinition>> {
        let always = self.generated()?;
        self.expect(&["as"])?;
        if !self.takes(&["identity"]) {
            self.parentheses()?;
            self.takes_any(&["stored", "virtual"]);
            self.unsupported = Some("a generated column");
            return Ok(None);
        }
        let mut options = SequenceOptions::default();
        if self.token(&Token::LParen) {
            self.sequence_options(&mut options)?;
            self.expect_token(&Token::RParen)?;
        }
        Ok(Some(IdentityDefinition { always, options }))
    }

    pub(super) fn generated(&mut self) -> Read<bool> {
        if self.takes(&["always"]) {
            return Ok(true);
        }
        self.expect(&["by", "default"])?;
        Ok(false)
    }

    pub(super) fn create_index(&mut self) -> Read<Definition> {
        self.expect(&["create"])?;
        let unique = self.takes(&["unique"]);
        self.expect(&["index"])?;
        let concurrently = self.takes(&["concurrently"]);
        let if_not_exists = self.if_not_exists();
        let name = if self.sees(&["on"]) { None } else { Some(self.ident()?) };
        self.expect(&["on"])?;
        self.takes(&["only"]);
        let table = self.name()?;
        let method = if self.takes(&["using"]) { Some(self.ident()?) } else { None };
        let columns = self.listed(Self::index_element)?;
        let include = if self.takes(&["include"]) { self.listed(Self::index_element)? } else { Vec::new() };
        let nulls_not_distinct = self.nulls_not_distinct()?;
        if self.takes(&["with"]) {
            self.parentheses()?;
        }
        if self.takes(&["tablespace"]) {
            self.ident()?;
        }
        let predicate = if self.takes(&["where"]) { Some(crate::syntax::parse_expression(self.parser)?) } else { None };
        let index = CreateIndex {
            name,
            table,
            unique,
            if_not_exists,
            concurrently,
            method,
            columns,
            include,
            nulls_not_distinct,
            predicate,
        };
        Ok(Definition::CreateIndex(Box::new(index)))
    }

    /// A column of an index, or an expression: that of a function, or anything in parentheses.
    pub(crate) fn index_element(&mut self) -> Read<IndexElement> {
        let mut collation = None;
        let of = if self.token(&Token::LParen) {
            let expression = crate::syntax::parse_expression(self.parser)?;
            self.expect_token(&Token::RParen)?;
            Some(expression)
        } else if matches!(self.parser.peek_nth_token_ref(1).token, Token::LParen) {
            Some(crate::syntax::parse_expression(self.parser)?)
        } else {
            None
        };
        let of = match of {
            None => Indexed::Column(self.ident()?),
            // It belongs to the index, not to what it is on.
            Some(Expr::Collate { expr, collation: named }) => {
                let Ok((schema, name)) = crate::bind::qualified(&named) else { return self.fail("a collation") };
                collation = Some(Name { database: None, schema, name });
                Indexed::Expression(expr)
            }
            Some(expression) => Indexed::Expression(Box::new(expression)),
        };
        if self.takes(&["collate"]) {
            collation = Some(self.name()?);
        }
        let (mut class, mut class_parameters) = (None, false);
        if !["asc", "desc", "nulls"].iter().any(|word| self.sees(&[word]))
            && matches!(self.parser.peek_token_ref().token, Token::Word(_))
        {
            class = Some(self.name()?);
            class_parameters = self.sees_token(&Token::LParen);
            if class_parameters {
                self.parentheses()?;
            }
        }
        let order = self.takes_any(&["asc", "desc"]);
        let nulls_first = match self.takes(&["nulls"]) {
            false => None,
            true => match self.takes_any(&["first", "last"]) {
                Some(which) => Some(which == "first"),
                None => return self.fail("FIRST or LAST"),
            },
        };
        Ok(IndexElement { of, collation, class, class_parameters, order, nulls_first })
    }
}
