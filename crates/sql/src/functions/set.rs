//! Functions that return sets of rows, and that say something about the system: what clients ask
//! beside reading catalogs.
//!
//! They are declared here, so that the binders of queries know their columns. What needs no session
//! is answered here too, the rest by the session
//! ([`SessionCalls::rows`](super::SessionCalls::rows)).

use super::resolve::accepts;
use crate::{
    SqlError, SqlState,
    types::{EvalContext, Kind, Value},
};

/// PostgreSQL's key words: see its first lines.
const KEYWORDS: &str = include_str!("keywords.txt");

macro_rules! set_functions {
    ($($variant:ident = $schema:ident $name:literal ($($argument:ident),*) -> ($($column:ident $kind:ident),+), $doc:literal;)+) => {
        /// A function that returns a set of rows.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum SetFunction {
            $(#[doc = $doc] $variant,)+
        }

        const ALL: &[Declared] = &[
            $(Declared {
                function: SetFunction::$variant,
                schema: stringify!($schema),
                name: $name,
                arguments: &[$(Kind::$argument),*],
                columns: &[$((stringify!($column), Kind::$kind)),+],
            },)+
        ];
    };
}

/// How a function is declared.
#[derive(Debug)]
pub struct Declared {
    /// The function that is declared.
    pub function: SetFunction,
    /// The schema that it is in.
    pub schema: &'static str,
    /// The name by which FROM calls it.
    pub name: &'static str,
    /// The kinds of its arguments.
    pub arguments: &'static [Kind],
    /// The columns that it returns; `anyelement` stands for the element of its array.
    pub columns: &'static [(&'static str, Kind)],
}

set_functions! {
    ExpandArray = information_schema "_pg_expandarray" (AnyArray) -> (x AnyElement, n Int4), "An array's elements, numbered from 1.";
    Keywords = pg_catalog "pg_get_keywords" () -> (word Text, catcode SingleChar, barelabel Bool, catdesc Text, baredesc Text),
        "The key words of SQL.";
    OptionsToTable = pg_catalog "pg_options_to_table" (TextArray) -> (option_name Text, option_value Text), "Options `name=value`, taken apart.";
    AclExplode = pg_catalog "aclexplode" (TextArray) -> (grantor Oid, grantee Oid, privilege_type Text, is_grantable Bool),
        "Privileges, one by one.";
    PartitionAncestors = pg_catalog "pg_partition_ancestors" (Regclass) -> (relid Regclass),
        "The tables that a partition is in: there are no partitions.";
    PartitionTree = pg_catalog "pg_partition_tree" (Regclass) -> (relid Regclass, parentrelid Regclass, isleaf Bool, level Int4),
        "A table's partitions: likewise.";
    AvailableExtensions = pg_catalog "pg_available_extensions" () -> (name Name, default_version Text, comment Text),
        "Extensions that could be made: there are none.";
    AvailableExtensionVersions = pg_catalog "pg_available_extension_versions" () -> (name Name, version Text, superuser Bool, trusted Bool,
        relocatable Bool, schema Name, requires NameArray, comment Text), "Their versions.";
    ListeningChannels = pg_catalog "pg_listening_channels" () -> (pg_listening_channels Text), "What the session listens to.";
    SequenceParameters = pg_catalog "pg_sequence_parameters" (Oid) -> (start_value Int8, minimum_value Int8, maximum_value Int8, increment Int8,
        cycle_option Bool, cache_size Int8, data_type Oid), "How a sequence was made.";
    Settings = pg_catalog "pg_show_all_settings" () -> (name Text, setting Text, unit Text, category Text, short_desc Text, extra_desc Text,
        context Text, vartype Text, source Text, min_val Text, max_val Text, enumvals TextArray, boot_val Text, reset_val Text,
        sourcefile Text, sourceline Int4, pending_restart Bool), "The session's settings.";
}

impl Declared {
    /// The declarations of all functions that return sets.
    pub fn all() -> &'static [Self] {
        ALL
    }

    /// Those of a name; a schema may be said.
    pub fn named(schema: Option<&str>, name: &str) -> impl Iterator<Item = &'static Self> {
        // What is in information_schema is found only there.
        ALL.iter().filter(move |declared| declared.name == name && declared.schema == schema.unwrap_or("pg_catalog"))
    }

    /// What arguments of these kinds are cast to, and the columns for them; nothing when they do
    /// not fit.
    #[expect(clippy::type_complexity, reason = "what it takes, what it returns")]
    pub fn resolve(&self, given: &[Kind]) -> Option<(Vec<Kind>, Vec<(&'static str, Kind)>)> {
        if given.len() != self.arguments.len() {
            return None;
        }
        if !self.arguments.iter().zip(given).all(|(declared, given)| accepts(*declared, *given)) {
            return None;
        }
        let element = given.first().and_then(|kind| kind.element());
        let polymorphic = self.arguments.contains(&Kind::AnyArray);
        let arguments = match polymorphic {
            true => given.to_vec(),
            false => self.arguments.to_vec(),
        };
        let column = |(name, kind): &(&'static str, Kind)| match kind {
            Kind::AnyElement => Some((*name, element?)),
            kind => Some((*name, *kind)),
        };
        let columns = self.columns.iter().map(column).collect::<Option<_>>()?;
        Some((arguments, columns))
    }
}

impl SetFunction {
    /// How this function is declared.
    pub fn declared(self) -> &'static Declared {
        // Every variant has one: they are made together.
        ALL.iter().find(|declared| declared.function == self).unwrap_or(&ALL[0])
    }

    /// Its rows, for arguments of the kinds that it declares; none when one of them is null.
    ///
    /// # Errors
    /// What there is to say against the arguments.
    pub fn rows(self, arguments: &[Value], context: &EvalContext<'_>) -> Result<Vec<Vec<Value>>, SqlError> {
        if arguments.iter().any(Value::is_null) {
            return Ok(Vec::new());
        }
        Ok(match (self, arguments) {
            (Self::ExpandArray, [Value::Array(array)]) => {
                let numbered = array.values().iter().zip(1..);
                numbered.map(|(value, number)| vec![value.clone(), Value::Int4(number)]).collect()
            }
            (Self::Keywords, []) => keywords(),
            (Self::OptionsToTable, [Value::Array(array)]) => {
                let options = array.values().iter().filter_map(Value::as_str);
                let apart = options.map(|option| match option.split_once('=') {
                    Some((name, value)) => vec![Value::text(name), Value::text(value)],
                    None => vec![Value::text(option), Value::Null],
                });
                apart.collect()
            }
            (
                Self::PartitionAncestors
                | Self::PartitionTree
                | Self::AvailableExtensions
                | Self::AvailableExtensionVersions,
                _,
            ) => Vec::new(),
            _ => match context.session {
                Some(session) => session.rows(self, arguments)?,
                None => {
                    let name = self.declared().name;
                    return Err(SqlError::new(
                        SqlState::FEATURE_NOT_SUPPORTED,
                        format!("{name}() is called outside of a session"),
                    ));
                }
            },
        })
    }
}

fn keywords() -> Vec<Vec<Value>> {
    let mut words: Vec<(&str, &str, bool)> = Vec::new();
    for line in KEYWORDS.lines().filter(|line| !line.starts_with('#')) {
        let Some((category, all)) = line.split_once(' ') else { continue };
        words.extend(all.split(' ').map(|word| (word.trim_end_matches('*'), category, !word.ends_with('*'))));
    }
    words.sort_unstable();
    let rows = words.into_iter().map(|(word, category, bare)| {
        let description = match category {
            "U" => "unreserved",
            "C" => "unreserved (cannot be function or type name)",
            "T" => "reserved (can be function or type name)",
            _ => "reserved",
        };
        let letter = category.to_ascii_lowercase().bytes().next().unwrap_or(b'u');
        let label = if bare { "can be bare label" } else { "requires AS" };
        vec![
            Value::text(word),
            Value::SingleChar(letter),
            Value::Bool(bare),
            Value::text(description),
            Value::text(label),
        ]
    });
    rows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::Array;

    #[test]
    fn key_words_are_read_whole() {
        let words = keywords();
        assert_eq!(words.len(), 460);
        let find = |word: &str| words.iter().find(|row| row[0].as_str() == Some(word)).unwrap();
        assert_eq!(find("select")[1], Value::SingleChar(b'r'));
        assert_eq!(find("left")[1], Value::SingleChar(b't'));
        assert_eq!(find("coalesce")[1], Value::SingleChar(b'c'));
        assert_eq!(find("abort")[1], Value::SingleChar(b'u'));
        assert_eq!((&find("with")[2], &find("zone")[2]), (&Value::Bool(false), &Value::Bool(true)));
    }

    #[test]
    fn every_function_is_declared_once() {
        for declared in Declared::all() {
            assert_eq!(declared.function.declared().name, declared.name);
            assert_eq!(Declared::named(Some(declared.schema), declared.name).count(), 1);
        }
    }

    #[test]
    fn arrays_are_expanded() {
        let declared = SetFunction::ExpandArray.declared();
        let (arguments, columns) = declared.resolve(&[Kind::Int2Vector]).unwrap();
        assert_eq!((arguments, columns), (vec![Kind::Int2Vector], vec![("x", Kind::Int2), ("n", Kind::Int4)]));
        assert!(declared.resolve(&[Kind::Int4]).is_none());
        let array = Value::array(Array::with_lower(Kind::Int2, vec![Value::Int2(7), Value::Int2(5)], 0));
        let rows = SetFunction::ExpandArray.rows(&[array], &EvalContext::default()).unwrap();
        assert_eq!(rows, [[Value::Int2(7), Value::Int4(1)], [Value::Int2(5), Value::Int4(2)]]);
    }
}
