//! Roles and what they may do.

use sqlparser::tokenizer::Token;

use super::{
    AlterRole, CreateRole, Definition, Grant, GrantObjects, MemberOptions, Membership, Privilege, RoleName,
    RoleOptions, SettingChange,
    words::{Read, Words},
};
use crate::schema::privilege;

impl Words<'_, '_> {
    pub(super) fn create_role(&mut self) -> Read<Definition> {
        self.expect(&["create"])?;
        let user = self.takes_any(&["role", "user", "group"]) == Some("user");
        let name = self.ident()?;
        self.takes(&["with"]);
        let (in_roles, members, administrators) = Default::default();
        let mut role = CreateRole { name, user, options: RoleOptions::default(), in_roles, members, administrators };
        loop {
            if self.takes(&["in", "role"]) || self.takes(&["in", "group"]) {
                role.in_roles.extend(self.list(Self::role)?);
            } else if self.takes_any(&["role", "user"]).is_some() {
                role.members.extend(self.list(Self::role)?);
            } else if self.takes(&["admin"]) {
                role.administrators.extend(self.list(Self::role)?);
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
            let (options, grantor, cascade) = Default::default();
            let grant = way == "add";
            let membership = Membership { grant, roles: vec![name], members, options, grantor, cascade };
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

    pub(super) fn setting_change(&mut self) -> Read<SettingChange> {
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
        if self.takes(&["session", "authorization"]) {
            return self.setting_value("session_authorization".to_owned());
        }
        let name = self.setting_name()?;
        if self.takes(&["from", "current"]) {
            return Ok(SettingChange::Set(name, None));
        }
        // SET ROLE name
        let bare = name == "role" && !matches!(self.parser.peek_token_ref().token, Token::Eq);
        if !self.takes(&["to"]) && !bare {
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
        let value = self.list(crate::session::syntax::value)?;
        Ok(SettingChange::Set(name, Some(value)))
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
                4 => options.inherit = Some(value),
                // Nodes replicate by other means, and there is no row security: neither makes a
                // difference.
                5 => options.replication = Some(value),
                _ => options.bypass_row_security = Some(value),
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

    pub(crate) fn string(&mut self) -> Read<String> {
        crate::syntax::text(self.parser)
    }

    pub(super) fn grant(&mut self, grant: bool) -> Read<Definition> {
        self.parser.advance_token();
        let mut option = !grant && self.takes(&["grant", "option", "for"]);
        let mut options = MemberOptions::default();
        if !grant {
            for (word, option) in
                [("admin", &mut options.admin), ("inherit", &mut options.inherit), ("set", &mut options.set)]
            {
                if self.takes(&[word, "option", "for"]) {
                    *option = Some(false);
                }
            }
        }
        // Privileges or roles: that is known when the list ends.
        let mut words = Vec::new();
        loop {
            let quoted = matches!(&self.parser.peek_token_ref().token, Token::Word(word) if word.quote_style.is_some());
            let word = self.ident()?;
            if words.is_empty() && word == "all" && !quoted {
                self.takes(&["privileges"]);
            }
            let columns = if self.sees_token(&Token::LParen) { self.listed(Self::ident)? } else { Vec::new() };
            words.push((word, quoted, columns));
            if !self.token(&Token::Comma) {
                break;
            }
        }
        if !self.takes(&["on"]) {
            if words.iter().any(|(.., columns)| !columns.is_empty()) {
                return self.fail("ON");
            }
            return self.membership(grant, options, words.into_iter().map(|(word, ..)| word).collect());
        }
        let only = words.len() == 1;
        let known = words.into_iter().map(|(word, quoted, columns)| match privilege::named(&word) {
            _ if only && word == "all" && !quoted => Ok(Privilege { one: None, columns }),
            Some(bit) => Ok(Privilege { one: Some((bit, word.to_uppercase())), columns }),
            None => Err(sqlparser::parser::ParserError::ParserError(format!("unrecognized privilege type \"{word}\""))),
        });
        let privileges = known.collect::<Read<Vec<_>>>()?;
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

    fn membership(&mut self, grant: bool, mut options: MemberOptions, roles: Vec<String>) -> Read<Definition> {
        self.expect(&[if grant { "to" } else { "from" }])?;
        let members = self.list(Self::role)?;
        if grant && self.takes(&["with"]) {
            self.list(|words| {
                let option = match words.takes_any(&["admin", "inherit", "set"]) {
                    Some("admin") => &mut options.admin,
                    Some("inherit") => &mut options.inherit,
                    Some(_) => &mut options.set,
                    None => return words.fail("ADMIN, INHERIT or SET"),
                };
                *option = match words.takes_any(&["option", "true", "false"]) {
                    Some(value) => Some(value != "false"),
                    None => return words.fail("OPTION, TRUE or FALSE"),
                };
                Ok(())
            })?;
        }
        let grantor = if self.takes(&["granted", "by"]) { Some(self.role()?) } else { None };
        let cascade = self.cascade();
        Ok(Definition::Membership(Membership { grant, roles, members, options, grantor, cascade }))
    }
}
