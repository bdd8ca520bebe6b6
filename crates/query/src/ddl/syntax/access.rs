//! Roles and what they may do.

use sqlparser::tokenizer::Token;

use super::{
    AlterRole, CreateRole, Definition, Grant, GrantObjects, Membership, RoleName, RoleOptions, SettingChange,
    words::{Read, Words},
};
use crate::schema::privilege;

impl Words<'_, '_> {
    pub(super) fn create_role(&mut self) -> Read<Definition> {
        self.expect(&["create"])?;
        let user = self.takes_any(&["role", "user", "group"]) == Some("user");
        let name = self.ident()?;
        self.takes(&["with"]);
        let mut role =
            CreateRole { name, user, options: RoleOptions::default(), in_roles: Vec::new(), members: Vec::new() };
        loop {
            if self.takes(&["in", "role"]) || self.takes(&["in", "group"]) {
                role.in_roles.extend(self.list(Self::role)?);
            } else if self.takes_any(&["role", "user", "admin"]).is_some() {
                role.members.extend(self.list(Self::role)?);
            } else if !self.role_option(&mut role.options)? {
                return Ok(Definition::CreateRole(role));
            }
        }
    }

    pub(super) fn alter_role(&mut self) -> Read<Definition> {
        self.expect(&["alter"])?;
        let group = self.takes_any(&["role", "user", "group"]) == Some("group");
        let all = self.sees(&["all", "set"]) || self.sees(&["all", "reset"]) || self.sees(&["all", "in"]);
        if all {
            self.parser.advance_token();
            return self.role_setting(None);
        }
        let name = self.role()?;
        if group && let Some(way) = self.takes_any(&["add", "drop"]) {
            self.expect(&["user"])?;
            let members = self.list(Self::role)?;
            let super::RoleName::Named(name) = name else { return self.fail("the name of a role") };
            let membership = Membership { grant: way == "add", roles: vec![name], members, option_only: false };
            return Ok(Definition::Membership(membership));
        }
        if self.sees(&["set"]) || self.sees(&["reset"]) || self.sees(&["in", "database"]) {
            return self.role_setting(Some(name));
        }
        if self.takes(&["rename", "to"]) {
            return Ok(Definition::AlterRole { name, change: AlterRole::Rename(self.ident()?) });
        }
        self.takes(&["with"]);
        let mut options = RoleOptions::default();
        while self.role_option(&mut options)? {}
        Ok(Definition::AlterRole { name, change: AlterRole::Options(options) })
    }

    fn role_setting(&mut self, role: Option<RoleName>) -> Read<Definition> {
        let database = if self.takes(&["in", "database"]) { Some(self.ident()?) } else { None };
        Ok(Definition::AlterSetting { role, database, change: self.setting_change()? })
    }

    /// ALTER DATABASE, as far as it is about settings.
    pub(super) fn alter_database(&mut self) -> Read<Definition> {
        self.expect(&["alter", "database"])?;
        let database = Some(self.ident()?);
        if self.sees(&["set", "tablespace"]) || !self.sees(&["set"]) && !self.sees(&["reset"]) {
            self.skip();
            return Ok(Definition::Unsupported("ALTER DATABASE".to_owned()));
        }
        Ok(Definition::AlterSetting { role: None, database, change: self.setting_change()? })
    }

    fn setting_change(&mut self) -> Read<SettingChange> {
        if self.takes(&["reset", "all"]) {
            return Ok(SettingChange::ResetAll);
        }
        if self.takes(&["reset"]) {
            return Ok(SettingChange::Reset(self.setting_name()?));
        }
        self.expect(&["set"])?;
        if self.takes(&["time", "zone"]) {
            return self.setting_value("timezone".to_owned());
        }
        let name = self.setting_name()?;
        if self.takes(&["from", "current"]) {
            return Ok(SettingChange::Set(name, None));
        }
        if !self.takes(&["to"]) {
            self.expect_token(&Token::Eq)?;
        }
        self.setting_value(name)
    }

    fn setting_name(&mut self) -> Read<String> {
        if self.takes(&["time", "zone"]) {
            return Ok("timezone".to_owned());
        }
        let mut name = self.ident()?;
        while self.token(&Token::Period) {
            name = format!("{name}.{}", self.ident()?);
        }
        Ok(name)
    }

    /// DEFAULT, or a list of words, texts and numbers.
    fn setting_value(&mut self, name: String) -> Read<SettingChange> {
        if self.takes(&["default"]) {
            return Ok(SettingChange::Reset(name));
        }
        let values = self.list(|it| {
            let negative = it.token(&Token::Minus);
            match &it.parser.peek_token_ref().token {
                Token::Number(digits, _) => {
                    let value = format!("{}{digits}", if negative { "-" } else { "" });
                    it.parser.advance_token();
                    Ok(value)
                }
                Token::Word(_) if !negative => {
                    let Token::Word(word) = it.parser.next_token().token else { return it.fail("a value") };
                    Ok(if word.quote_style.is_some() { word.value } else { word.value.to_lowercase() })
                }
                _ if !negative => it.string(),
                _ => it.fail("a number"),
            }
        })?;
        Ok(SettingChange::Set(name, Some(values.join(", "))))
    }

    fn role_option(&mut self, options: &mut RoleOptions) -> Read<bool> {
        for (on, off, which) in [
            ("superuser", "nosuperuser", 0),
            ("login", "nologin", 1),
            ("createrole", "nocreaterole", 2),
            ("createdb", "nocreatedb", 3),
            ("inherit", "noinherit", 4),
            ("replication", "noreplication", 5),
            ("bypassrls", "nobypassrls", 6),
        ] {
            let Some(word) = self.takes_any(&[on, off]) else { continue };
            let value = word == on;
            match which {
                0 => options.superuser = Some(value),
                1 => options.login = Some(value),
                2 => options.create_role = Some(value),
                3 => options.create_database = Some(value),
                4 if !value => options.unsupported = Some("NOINHERIT".to_owned()),
                // Nodes replicate by other means, and there is no row security: neither makes a difference.
                _ => {}
            }
            return Ok(true);
        }
        if self.takes(&["encrypted", "password"]) || self.takes(&["password"]) {
            let password = if self.takes(&["null"]) { None } else { Some(self.string()?) };
            options.password = Some(password);
        } else if self.takes(&["connection", "limit"]) {
            options.connection_limit = Some(self.integer()?);
        } else if self.takes(&["valid", "until"]) {
            options.valid_until = Some(self.string()?);
        } else if self.takes(&["sysid"]) {
            self.integer()?;
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    fn string(&mut self) -> Read<String> {
        self.parser.parse_literal_string()
    }

    pub(super) fn grant(&mut self, grant: bool) -> Read<Definition> {
        self.parser.advance_token();
        let mut option = !grant && self.takes(&["grant", "option", "for"]);
        let option_only = !grant && self.takes(&["admin", "option", "for"]);
        // Privileges or roles: that is known when the list ends.
        let mut words = Vec::new();
        let mut columns = false;
        loop {
            let quoted = matches!(&self.parser.peek_token_ref().token, Token::Word(word) if word.quote_style.is_some());
            words.push((self.ident()?, quoted));
            if self.sees_token(&Token::LParen) {
                self.parentheses()?;
                columns = true;
            }
            if words.len() == 1 && words[0].0 == "all" {
                self.takes(&["privileges"]);
                if self.sees_token(&Token::LParen) {
                    self.parentheses()?;
                    columns = true;
                }
            }
            if !self.token(&Token::Comma) {
                break;
            }
        }
        if !self.takes(&["on"]) {
            return self.membership(grant, option_only, words.into_iter().map(|(word, _)| word).collect());
        }
        if columns {
            self.skip();
            return Ok(Definition::Unsupported("a privilege on some columns".to_owned()));
        }
        let privileges = match words.as_slice() {
            [(all, false)] if all == "all" => None,
            _ => {
                let known = words.into_iter().map(|(word, _)| match privilege::named(&word) {
                    Some(bit) => Ok((bit, word.to_uppercase())),
                    None => Err(sqlparser::parser::ParserError::ParserError(format!(
                        "unrecognized privilege type \"{word}\""
                    ))),
                });
                Some(known.collect::<Read<Vec<_>>>()?)
            }
        };
        let Some(objects) = self.grant_objects()? else {
            self.skip();
            let what = "a privilege on this kind of object";
            return Ok(Definition::Unsupported(what.to_owned()));
        };
        self.expect(&[if grant { "to" } else { "from" }])?;
        let roles = self.list(|it| {
            it.takes(&["group"]);
            it.role()
        })?;
        if grant {
            option = self.takes(&["with", "grant", "option"]);
        }
        if self.takes(&["granted", "by"]) {
            self.role()?;
        }
        let cascade = self.cascade();
        Ok(Definition::Grant(Grant { grant, privileges, objects, roles, option, cascade }))
    }

    fn skip(&mut self) {
        while !self.ends() {
            self.parser.advance_token();
        }
    }

    fn grant_objects(&mut self) -> Read<Option<GrantObjects>> {
        if self.takes(&["all", "tables", "in", "schema"]) {
            return Ok(Some(GrantObjects::AllTables(self.idents()?)));
        }
        if self.takes(&["all", "sequences", "in", "schema"]) {
            return Ok(Some(GrantObjects::AllSequences(self.idents()?)));
        }
        if self.sees(&["all"]) {
            return Ok(None);
        }
        // A table may have any of these names.
        let named = matches!(self.parser.peek_nth_token_ref(1).token, Token::Word(_))
            && !["to", "from"].iter().any(|word| {
                matches!(&self.parser.peek_nth_token_ref(1).token, Token::Word(next) if next.value.eq_ignore_ascii_case(word))
            });
        if named {
            if self.takes(&["sequence"]) {
                return Ok(Some(GrantObjects::Sequences(self.names()?)));
            }
            if self.takes(&["schema"]) {
                return Ok(Some(GrantObjects::Schemas(self.idents()?)));
            }
            if self.takes(&["database"]) {
                return Ok(Some(GrantObjects::Databases(self.idents()?)));
            }
            if !self.takes(&["table"]) {
                return Ok(None);
            }
        }
        Ok(Some(GrantObjects::Tables(self.names()?)))
    }

    fn membership(&mut self, grant: bool, option_only: bool, roles: Vec<String>) -> Read<Definition> {
        self.expect(&[if grant { "to" } else { "from" }])?;
        let members = self.list(Self::role)?;
        while self.takes(&["with"]) || self.token(&Token::Comma) {
            // Who administers a role is its maker or a superuser; privileges are always inherited.
            self.ident()?;
            if self.takes_any(&["option", "true", "false"]).is_none() {
                return self.fail("OPTION, TRUE or FALSE");
            }
        }
        if self.takes(&["granted", "by"]) {
            self.role()?;
        }
        self.cascade();
        Ok(Definition::Membership(Membership { grant, roles, members, option_only }))
    }
}
