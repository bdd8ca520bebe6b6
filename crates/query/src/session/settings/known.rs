//! The settings that there are: PostgreSQL 15's, and this server's own.

use std::{collections::BTreeMap, sync::LazyLock};

use super::value::Unit;

/// How a setting is checked, and how its value is shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// Any text.
    Text,
    /// A truth value.
    Bool,
    /// A whole number, from the first to the second.
    Integer(Unit, i64, i64),
    /// Any number, from the first to the second.
    Real(Unit, f64, f64),
    /// One of these.
    Choice(Vec<&'static str>),
    /// DateStyle
    DateStyle,
    /// client_encoding
    Encoding,
    /// A list of quoted names.
    Names,
    /// A safety level.
    Safety,
    /// A time zone.
    TimeZone,
    /// A role: the session sets it, since it knows which roles it may become
    /// ([`super::Settings::set_role`]).
    Role,
}

/// Who may change a setting, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// Nobody: it says how the server is.
    Internal,
    /// The operator, for a server that starts.
    Postmaster,
    /// The operator, for a server that runs.
    Sighup,
    /// A superuser, for a session that begins.
    SuperuserBackend,
    /// A session that begins.
    Backend,
    /// A superuser.
    Superuser,
    /// Any session.
    User,
}

impl Context {
    const ALL: [(&'static str, Self); 7] = [
        ("internal", Self::Internal),
        ("postmaster", Self::Postmaster),
        ("sighup", Self::Sighup),
        ("superuser-backend", Self::SuperuserBackend),
        ("backend", Self::Backend),
        ("superuser", Self::Superuser),
        ("user", Self::User),
    ];

    /// Its name in `pg_settings`.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, context)| *context == self).map_or("user", |(name, _)| name)
    }
}

/// A setting.
#[derive(Clone, Debug)]
pub struct Known {
    /// Its name, as it is shown.
    pub name: &'static str,
    /// What it can be.
    pub kind: Kind,
    /// Its value when the server starts, as SHOW shows it.
    pub boot: String,
    /// Who may change it, and when.
    pub context: Context,
    /// Its group in `pg_settings`.
    pub category: &'static str,
    /// What it is for.
    pub about: &'static str,
    /// Whether lists of settings have it.
    pub listed: bool,
}

/// PostgreSQL's: name, context, type, unit, least, most, choices, value when the server starts,
/// category, what it is for. Left out are those that say where files are and how logs are written.
const POSTGRESQL: &str = include_str!("postgres.tsv");

/// This server's own, and those of PostgreSQL's that its list leaves out.
const OTHERS: &str = "\
freshet.commit_lsns\tuser\tbool\t\t\t\t\toff\tFreshet\tSends the LSN of each commit as a ParameterStatus.
freshet.last_commit\tinternal\tstring\t\t\t\t\t\tFreshet\tShows the LSN of the session's last commit.
freshet.max_staleness\tuser\tinteger\tms\t0\t2147483647\t\t0\tFreshet\tSets the greatest age of what a transaction reads.
freshet.query_memory\tuser\tinteger\tkB\t0\t2147483647\t\t262144\tFreshet\tSets the memory that a statement may keep.
freshet.read_after\tuser\tstring\t\t\t\t\t\tFreshet\tSets the LSN that transactions wait for before they read.
freshet.read_after_timeout\tuser\tinteger\tms\t0\t2147483647\t\t10000\tFreshet\tSets how long they wait for it.
freshet.route\tbackend\tenum\t\t\t\tnode|primary|standby|any\tnode\tFreshet\tSets which node serves the session.
freshet.safety\tuser\tstring\t\t\t\t\t\tFreshet\tSets what a commit waits for.
is_superuser\tinternal\tbool\t\t\t\t\ton\tUngrouped\tShows whether the current user is a superuser.
role\tuser\tstring\t\t\t\t\tnone\tUngrouped\tSets the current role.
session_authorization\tuser\tstring\t\t\t\t\t\tUngrouped\tSets the session user name.
";

/// The settings whose changes clients are told of. A commit's LSN is told by itself.
const REPORTED: &[&str] = &[
    "application_name",
    "client_encoding",
    "datestyle",
    "default_transaction_read_only",
    "in_hot_standby",
    "integer_datetimes",
    "intervalstyle",
    "is_superuser",
    "server_encoding",
    "server_version",
    "session_authorization",
    "standard_conforming_strings",
    "timezone",
];

static KNOWN: LazyLock<BTreeMap<String, Known>> = LazyLock::new(|| {
    let lines = POSTGRESQL.lines().chain(OTHERS.lines());
    lines.filter_map(read).map(|known| (known.name.to_ascii_lowercase(), known)).collect()
});

fn read(line: &'static str) -> Option<Known> {
    let mut parts = line.split('\t');
    let mut next = || parts.next();
    let (name, context, kind, unit) = (next()?, next()?, next()?, Unit::named(next()?)?);
    let (least, most, choices, boot, category, about) = (next()?, next()?, next()?, next()?, next()?, next()?);
    let context = Context::ALL.iter().find(|(known, _)| *known == context)?.1;
    let kind = match (name, kind) {
        ("DateStyle", _) => Kind::DateStyle,
        ("TimeZone" | "log_timezone", _) => Kind::TimeZone,
        ("client_encoding", _) => Kind::Encoding,
        ("freshet.safety", _) => Kind::Safety,
        ("role" | "session_authorization", _) => Kind::Role,
        ("search_path" | "temp_tablespaces" | "local_preload_libraries" | "session_preload_libraries", _) => {
            Kind::Names
        }
        (_, "bool") => Kind::Bool,
        (_, "integer") => Kind::Integer(unit, least.parse().ok()?, most.parse().ok()?),
        (_, "real") => Kind::Real(unit, least.parse().ok()?, most.parse().ok()?),
        (_, "enum") => Kind::Choice(choices.split('|').collect()),
        _ => Kind::Text,
    };
    let boot = match kind {
        Kind::Integer(unit, ..) => unit.show_integer(boot.parse().ok()?),
        Kind::Real(unit, ..) => unit.show_real(boot.parse().ok()?),
        _ => boot.to_owned(),
    };
    let listed = !matches!(name, "is_superuser" | "role" | "session_authorization");
    Some(Known { name, kind, boot, context, category, about, listed })
}

/// The setting with this name, in small letters.
pub fn known(name: &str) -> Option<&'static Known> {
    KNOWN.get(name)
}

/// All of them, with their names in small letters.
pub fn all() -> impl Iterator<Item = (&'static str, &'static Known)> {
    KNOWN.iter().map(|(name, known)| (name.as_str(), known))
}

/// Those whose changes clients are told of.
pub fn reported() -> impl Iterator<Item = (&'static str, &'static Known)> {
    REPORTED.iter().filter_map(|name| Some((*name, known(name)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_setting() {
        for line in POSTGRESQL.lines().chain(OTHERS.lines()) {
            let known = read(line).unwrap_or_else(|| panic!("{line:?} is no setting"));
            assert!(!known.about.is_empty() && !known.category.is_empty(), "{line:?}");
        }
        assert_eq!(reported().count(), REPORTED.len());
    }
}
