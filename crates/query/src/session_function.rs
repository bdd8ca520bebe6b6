//! Functions that only the session can answer.

use freshet_sql::{functions::Function, types::Kind};

macro_rules! session_functions {
    ($($variant:ident = $name:literal ($($argument:ident),*) -> $result:ident, $volatile:literal, $doc:literal;)+) => {
        /// A function of the session.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum SessionFunction {
            $(#[doc = $doc] $variant,)+
        }

        /// Their names, what they take, and what they return.
        const ALL: &[(&str, &[Kind], Kind, bool, SessionFunction)] = &[
            $(($name, &[$(Kind::$argument),*], Kind::$result, $volatile, SessionFunction::$variant),)+
        ];
    };
}

session_functions! {
    CurrentUser = "current_user" () -> Name, false, "The role in whose name statements run.";
    CurrentRole = "current_role" () -> Name, false, "The same.";
    User = "user" () -> Name, false, "The same.";
    SessionUser = "session_user" () -> Name, false, "The role that has opened the session.";
    CurrentDatabase = "current_database" () -> Name, false, "The database's name.";
    CurrentCatalog = "current_catalog" () -> Name, false, "The same.";
    CurrentSchema = "current_schema" () -> Name, false, "The first schema of the search path.";
    CurrentSchemas = "current_schemas" (Bool) -> NameArray, false, "The search path, with the implicit schemas or without.";
    Version = "version" () -> Text, false, "What this is.";
    BackendPid = "pg_backend_pid" () -> Int4, false, "The session's number.";
    IsInRecovery = "pg_is_in_recovery" () -> Bool, true, "Whether this node is a standby.";
    CancelBackend = "pg_cancel_backend" (Int4) -> Bool, true, "Cancels another session's statement.";
    TerminateBackend = "pg_terminate_backend" (Int4) -> Bool, true, "Ends another session.";
    Sleep = "pg_sleep" (Float8) -> Void, true, "Waits.";
    NextValue = "nextval" (Regclass) -> Int8, true, "The next value of a sequence.";
    CurrentValue = "currval" (Regclass) -> Int8, true, "The last one that this session got.";
    LastValue = "lastval" () -> Int8, true, "The last one that this session got from any.";
    SetValue = "setval" (Regclass, Int8) -> Int8, true, "Sets where a sequence stands.";
    SetValueCalled = "setval" (Regclass, Int8, Bool) -> Int8, true, "The same, saying whether that was given out.";
    SerialSequence = "pg_get_serial_sequence" (Text, Text) -> Text, false, "The sequence of a column.";
    CurrentSetting = "current_setting" (Text) -> Text, false, "A setting.";
    CurrentSettingOrNull = "current_setting" (Text, Bool) -> Text, false, "A setting, null if there is none.";
    SetConfig = "set_config" (Text, Text, Bool) -> Text, true, "Changes a setting.";
    FormatType = "format_type" (Oid, Int4) -> Text, false, "A type's name.";
    TableIsVisible = "pg_table_is_visible" (Oid) -> Bool, false, "Whether a relation is found without its schema.";
    TypeIsVisible = "pg_type_is_visible" (Oid) -> Bool, false, "The same of a type.";
    FunctionIsVisible = "pg_function_is_visible" (Oid) -> Bool, false, "The same of a function.";
    GetUserById = "pg_get_userbyid" (Oid) -> Name, false, "A role's name.";
    GetIndexDef = "pg_get_indexdef" (Oid) -> Text, false, "The statement that makes an index.";
    GetIndexColumn = "pg_get_indexdef" (Oid, Int4, Bool) -> Text, false, "A column of an index.";
    GetConstraintDef = "pg_get_constraintdef" (Oid) -> Text, false, "A constraint.";
    GetConstraintDefPretty = "pg_get_constraintdef" (Oid, Bool) -> Text, false, "A constraint.";
    GetExpr = "pg_get_expr" (Text, Oid) -> Text, false, "An expression of the catalog.";
    GetExprPretty = "pg_get_expr" (Text, Oid, Bool) -> Text, false, "An expression of the catalog.";
    GetViewDef = "pg_get_viewdef" (Oid) -> Text, false, "A view's query.";
    GetViewDefPretty = "pg_get_viewdef" (Oid, Bool) -> Text, false, "A view's query.";
    ObjDescription = "obj_description" (Oid, Name) -> Text, false, "What is said of an object.";
    ColDescription = "col_description" (Oid, Int4) -> Text, false, "What is said of a column.";
    SharedObjDescription = "shobj_description" (Oid, Name) -> Text, false, "What is said of a role.";
    EncodingToChar = "pg_encoding_to_char" (Int4) -> Name, false, "An encoding's name.";
    HasTablePrivilege = "has_table_privilege" (Text, Text) -> Bool, false, "Whether the current role may.";
    HasTablePrivilegeOid = "has_table_privilege" (Oid, Text) -> Bool, false, "Whether the current role may.";
    HasSchemaPrivilege = "has_schema_privilege" (Text, Text) -> Bool, false, "Whether the current role may.";
    HasSchemaPrivilegeOid = "has_schema_privilege" (Oid, Text) -> Bool, false, "Whether the current role may.";
    HasDatabasePrivilege = "has_database_privilege" (Text, Text) -> Bool, false, "Whether the current role may.";
    RelationSize = "pg_relation_size" (Regclass) -> Int8, true, "About how many bytes a table's rows take.";
    TableSize = "pg_table_size" (Regclass) -> Int8, true, "The same.";
    TotalRelationSize = "pg_total_relation_size" (Regclass) -> Int8, true, "The same.";
    DatabaseSize = "pg_database_size" (Name) -> Int8, true, "About how many bytes the rows of all tables take.";
    PostmasterStart = "pg_postmaster_start_time" () -> Timestamptz, false, "When the node was started.";
    ClientAddress = "inet_client_addr" () -> Text, false, "Where the client is.";
    LastCommit = "freshet_last_commit" () -> Text, true, "The stamp of the session's last commit.";
}

impl SessionFunction {
    /// The functions of a name.
    pub fn named(name: &str) -> impl Iterator<Item = (&'static [Kind], Kind, Self)> + use<'_> {
        ALL.iter()
            .filter(move |(known, ..)| *known == name)
            .map(|(_, arguments, result, _, function)| (*arguments, *result, *function))
    }

    /// Whether it may have another value the next time within a statement.
    pub fn is_volatile(self) -> bool {
        ALL.iter().any(|(.., volatile, function)| *function == self && *volatile)
    }

    /// The SQL name.
    pub fn name(self) -> &'static str {
        ALL.iter().find(|(.., function)| *function == self).map_or("", |(name, ..)| name)
    }

    /// All names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ALL.iter().map(|(name, ..)| *name)
    }
}

/// Whether there is any function of this name, of the session or not.
pub fn exists(name: &str) -> bool {
    let others: &[&Function] = freshet_sql::functions::named(name);
    !others.is_empty() || SessionFunction::named(name).next().is_some()
}
