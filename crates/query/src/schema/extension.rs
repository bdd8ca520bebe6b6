//! Extensions: which there are to be had, and what a database notes of those that it has.
//!
//! What they consist of is built in: their functions are there in every database, whether it has
//! the extension or not.

use serde::{Deserialize, Serialize};

use super::{Comment, FIRST_ROLE, Object, Oid, PG_CATALOG};

/// The extension `plpgsql`, which databases have from the beginning, and what is said of it.
const PLPGSQL: Oid = 13_559;
const COMMENT_ON_PLPGSQL: Oid = 13_560;

/// An extension that a database has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extension {
    /// The oid in `pg_extension`.
    pub oid: Oid,
    /// The extension's name.
    pub name: String,
    /// The role that owns it.
    pub owner: Oid,
    /// The schema that it was put into.
    pub namespace: Oid,
}

/// An extension that can be had. There is one version of each.
#[derive(Debug)]
pub struct Available {
    /// The name in CREATE EXTENSION.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// What is said of it.
    pub comment: &'static str,
    /// The only schema that it can be in, which is `pg_catalog`; without it in any.
    pub system: bool,
    /// Its functions, which are built in.
    pub functions: &'static [&'static str],
}

/// All that can be had, in the order of their names.
pub const AVAILABLE: &[Available] = &[
    Available {
        name: "pg_stat_statements",
        version: "1.10",
        comment: "track planning and execution statistics of all SQL statements executed",
        system: false,
        functions: &["pg_stat_statements_reset"],
    },
    Available {
        name: "pgcrypto",
        version: "1.3",
        comment: "cryptographic functions",
        system: false,
        functions: &["crypt", "digest", "gen_random_bytes", "gen_salt", "hmac"],
    },
    Available {
        name: "plpgsql",
        version: "1.0",
        comment: "PL/pgSQL procedural language",
        system: true,
        functions: &[],
    },
    Available {
        name: "uuid-ossp",
        version: "1.1",
        comment: "generate universally unique identifiers (UUIDs)",
        system: false,
        functions: &[
            "uuid_generate_v1",
            "uuid_generate_v1mc",
            "uuid_generate_v3",
            "uuid_generate_v4",
            "uuid_generate_v5",
            "uuid_nil",
            "uuid_ns_dns",
            "uuid_ns_oid",
            "uuid_ns_url",
            "uuid_ns_x500",
        ],
    },
];

impl Available {
    /// The one of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        AVAILABLE.iter().find(|available| available.name == name)
    }
}

/// The extensions that a database has from the beginning, and what is said of them.
pub(super) fn first() -> impl Iterator<Item = Object> {
    let of = |available: &Available| {
        let name = available.name.to_owned();
        let extension = Extension { oid: PLPGSQL, name, owner: FIRST_ROLE, namespace: PG_CATALOG };
        let on_extension = Comment {
            oid: COMMENT_ON_PLPGSQL,
            object: PLPGSQL,
            column: None,
            constraint: false,
            shared: false,
            text: available.comment.to_owned(),
        };
        [Object::Extension(extension), Object::Comment(on_extension)]
    };
    Available::named("plpgsql").into_iter().flat_map(of)
}
