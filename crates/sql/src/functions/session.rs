//! Functions that only a session can answer: who it is, what there is, where sequences stand.
//!
//! They are declared here, so that overloads are chosen among them as among all others; the session
//! answers them ([`SessionCalls`]).

use super::{Function, SetFunction, Volatility};
use crate::{
    SqlError,
    types::{EvalContext, Kind, Value},
};

/// A session, as its functions see it.
pub trait SessionCalls {
    /// Calls one of them. Arguments are of the kinds that it declares, or null.
    ///
    /// # Errors
    /// Whatever there is to say against it.
    fn call(&self, function: SessionFunction, arguments: &[Value]) -> Result<Value, SqlError>;

    /// The rows of one that returns a set and is not answered [without a
    /// session](SetFunction::rows). Arguments are of the kinds that it declares, none of them null.
    ///
    /// # Errors
    /// Whatever there is to say against it.
    fn rows(&self, function: SetFunction, arguments: &[Value]) -> Result<Vec<Vec<Value>>, SqlError>;
}

/// Functions that are called without parentheses. No column has such a name without quotes.
pub const WORDS_OF_SESSIONS: [&str; 11] = [
    "current_date",
    "current_time",
    "current_timestamp",
    "localtime",
    "localtimestamp",
    "current_user",
    "current_role",
    "session_user",
    "user",
    "current_catalog",
    "current_schema",
];

fn call(function: SessionFunction, arguments: &[Value], context: &EvalContext<'_>) -> Result<Value, SqlError> {
    match context.session {
        Some(session) => session.call(function, arguments),
        None => Err(SqlError::internal(format!("{}() is called outside of a session", function.name()))),
    }
}

macro_rules! session_functions {
    ($($variant:ident = $name:literal $(($($argument:ident),*))|+ -> $result:ident, $volatile:literal, $doc:literal;)+) => {
        /// A function of the session.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum SessionFunction {
            $(#[doc = $doc] $variant,)+
        }

        /// Their names, what they take, and what they return.
        const ALL: &[(&str, &[Kind], Kind, bool, SessionFunction)] = &[
            $($(($name, &[$(Kind::$argument),*], Kind::$result, $volatile, SessionFunction::$variant),)+)+
        ];

        pub(super) const FUNCTIONS: &[Function] = &[
            $($(Function {
                name: $name,
                arguments: &[$(Kind::$argument),*],
                variadic: false,
                result: Kind::$result,
                // Some are not.
                strict: false,
                volatility: if $volatile { Volatility::Volatile } else { Volatility::Stable },
                eval: |arguments, context| call(SessionFunction::$variant, arguments, context),
            },)+)+
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
    GetConstraintDef = "pg_get_constraintdef" (Oid) | (Oid, Bool) -> Text, false, "A constraint.";
    DescribeObject = "pg_describe_object" (Oid, Oid, Int4) -> Text, false, "An object in words.";
    GetExpr = "pg_get_expr" (Text, Oid) | (Text, Oid, Bool) -> Text, false, "An expression of the catalog.";
    GetViewDef = "pg_get_viewdef" (Text) | (Text, Bool) | (Oid) | (Oid, Bool) | (Oid, Int4) -> Text, false, "A view's query.";
    ObjDescription = "obj_description" (Oid, Name) | (Oid) -> Text, false, "What is said of an object.";
    ColDescription = "col_description" (Oid, Int4) -> Text, false, "What is said of a column.";
    SharedObjDescription = "shobj_description" (Oid, Name) -> Text, false, "What is said of a role.";
    EncodingToChar = "pg_encoding_to_char" (Int4) -> Name, false, "An encoding's name.";
    HasTablePrivilege = "has_table_privilege" (Text, Text) | (Oid, Text) | (Name, Text, Text) | (Name, Oid, Text) | (Oid, Text, Text)
        | (Oid, Oid, Text) -> Bool, false, "Whether a role may do something with a table.";
    HasAnyColumnPrivilege = "has_any_column_privilege" (Text, Text) | (Oid, Text) | (Name, Text, Text) | (Name, Oid, Text) | (Oid, Text, Text)
        | (Oid, Oid, Text) -> Bool, false, "Whether a role may do something with a column of a table.";
    HasSequencePrivilege = "has_sequence_privilege" (Text, Text) | (Oid, Text) | (Name, Text, Text) | (Name, Oid, Text) | (Oid, Text, Text)
        | (Oid, Oid, Text) -> Bool, false, "Whether a role may do something with a sequence.";
    HasSchemaPrivilege = "has_schema_privilege" (Text, Text) | (Oid, Text) | (Name, Text, Text) | (Name, Oid, Text) | (Oid, Text, Text)
        | (Oid, Oid, Text) -> Bool, false, "Whether a role may do something with a schema.";
    HasDatabasePrivilege = "has_database_privilege" (Text, Text) | (Oid, Text) | (Name, Text, Text) | (Name, Oid, Text) | (Oid, Text, Text)
        | (Oid, Oid, Text) -> Bool, false, "Whether a role may do something with a database.";
    HasFunctionPrivilege = "has_function_privilege" (Text, Text) | (Oid, Text) | (Name, Text, Text) | (Name, Oid, Text) | (Oid, Text, Text)
        | (Oid, Oid, Text) -> Bool, false, "Whether a role may do something with a function.";
    HasTypePrivilege = "has_type_privilege" (Text, Text) | (Oid, Text) | (Name, Text, Text) | (Name, Oid, Text) | (Oid, Text, Text)
        | (Oid, Oid, Text) -> Bool, false, "Whether a role may do something with a type.";
    HasLanguagePrivilege = "has_language_privilege" (Text, Text) | (Oid, Text) | (Name, Text, Text) | (Name, Oid, Text) | (Oid, Text, Text)
        | (Oid, Oid, Text) -> Bool, false, "Whether a role may do something with a language.";
    HasTablespacePrivilege = "has_tablespace_privilege" (Text, Text) | (Oid, Text) | (Name, Text, Text) | (Name, Oid, Text) | (Oid, Text, Text)
        | (Oid, Oid, Text) -> Bool, false, "Whether a role may do something with a tablespace.";
    HasColumnPrivilege = "has_column_privilege" (Text, Text, Text) | (Text, Int2, Text) | (Oid, Text, Text) | (Oid, Int2, Text)
        | (Name, Text, Text, Text) | (Name, Text, Int2, Text) | (Name, Oid, Text, Text) | (Name, Oid, Int2, Text)
        | (Oid, Text, Text, Text) | (Oid, Text, Int2, Text) | (Oid, Oid, Text, Text) | (Oid, Oid, Int2, Text) -> Bool, false,
        "Whether a role may do something with a column.";
    AclDefault = "acldefault" (SingleChar, Oid) -> TextArray, false, "The privileges on an object that nobody has granted or revoked.";
    HasRole = "pg_has_role" (Name, Text) | (Oid, Text) | (Name, Name, Text) | (Name, Oid, Text) | (Oid, Name, Text)
        | (Oid, Oid, Text) -> Bool, false, "Whether a role is a member of another one.";
    RowSecurityActive = "row_security_active" (Oid) | (Text) -> Bool, false, "Whether rows are hidden: they are not.";
    RelationSize = "pg_relation_size" (Regclass) | (Regclass, Text) -> Int8, true, "About how many bytes a table's rows take.";
    TableSize = "pg_table_size" (Regclass) -> Int8, true, "The same.";
    TotalRelationSize = "pg_total_relation_size" (Regclass) -> Int8, true, "The same.";
    IndexesSize = "pg_indexes_size" (Regclass) -> Int8, true, "About how many bytes a table's indexes take.";
    TablespaceSize = "pg_tablespace_size" (Name) | (Oid) -> Int8, true, "About how many bytes all tables take.";
    DatabaseSize = "pg_database_size" (Name) | (Oid) -> Int8, true, "About how many bytes the rows of all tables take.";
    PostmasterStart = "pg_postmaster_start_time" () -> Timestamptz, false, "When the node was started.";
    ClientAddress = "inet_client_addr" () -> Text, false, "Where the client is.";
    ClientPort = "inet_client_port" () -> Int4, false, "The port of the client.";
    LoadTime = "pg_conf_load_time" () -> Timestamptz, false, "When the configuration was read: at the start.";
    TempSchema = "pg_my_temp_schema" () -> Oid, false, "The schema of temporary tables: there is none.";
    IsOtherTempSchema = "pg_is_other_temp_schema" (Oid) -> Bool, false, "Whether it is another session's such schema.";
    GetFunctionDef = "pg_get_functiondef" (Oid) -> Text, false, "The statement that would make a function.";
    GetFunctionArguments = "pg_get_function_arguments" (Oid) -> Text, false, "What a function takes.";
    GetFunctionIdentity = "pg_get_function_identity_arguments" (Oid) -> Text, false, "What a function takes, to name it.";
    GetFunctionResult = "pg_get_function_result" (Oid) -> Text, false, "What a function returns.";
    GetFunctionDefault = "pg_get_function_arg_default" (Oid, Int4) -> Text, false, "An argument's default: there are none.";
    GetFunctionBody = "pg_get_function_sqlbody" (Oid) -> Text, false, "A function's SQL: there is none.";
    GetPartitionKey = "pg_get_partkeydef" (Oid) -> Text, false, "How a table is partitioned: none is.";
    GetPartitionConstraint = "pg_get_partition_constraintdef" (Oid) -> Text, false, "What a partition holds: there are none.";
    GetStatisticsColumns = "pg_get_statisticsobjdef_columns" (Oid) -> Text, false, "The columns of extended statistics.";
    GetStatistics = "pg_get_statisticsobjdef" (Oid) -> Text, false, "The statement that makes extended statistics.";
    GetRule = "pg_get_ruledef" (Oid) | (Oid, Bool) -> Text, false, "The statement that makes a rule.";
    GetTrigger = "pg_get_triggerdef" (Oid) | (Oid, Bool) -> Text, false, "The statement that makes a trigger: there are none.";
    IsPublishable = "pg_relation_is_publishable" (Regclass) -> Bool, false, "Whether it can be published: nothing can.";
    IsUpdatable = "pg_relation_is_updatable" (Regclass, Bool) -> Int4, false, "Which changes a relation takes, as bits.";
    ReplicaIdentity = "pg_get_replica_identity_index" (Regclass) -> Regclass, false, "The index that rows are told apart by.";
    FileNode = "pg_relation_filenode" (Regclass) -> Oid, false, "The number of a relation's file: its id.";
    FilePath = "pg_relation_filepath" (Regclass) -> Text, false, "A relation's file: it has none of its own.";
    TablespaceLocation = "pg_tablespace_location" (Oid) -> Text, false, "Where a tablespace is.";
    IndexColumnProperty = "pg_index_column_has_property" (Regclass, Int4, Text) -> Bool, false, "What an index's column can do.";
    IndexProperty = "pg_index_has_property" (Regclass, Text) -> Bool, false, "What an index can do.";
    AccessMethodProperty = "pg_indexam_has_property" (Oid, Text) -> Bool, false, "What an access method can do.";
    NumberOfScans = "pg_stat_get_numscans" (Oid) -> Int8, true, "How often a table or an index was scanned.";
    TuplesReturned = "pg_stat_get_tuples_returned" (Oid) -> Int8, true, "How many rows or entries that has read.";
    TuplesFetched = "pg_stat_get_tuples_fetched" (Oid) -> Int8, true, "How many rows were fetched by an index.";
    TuplesInserted = "pg_stat_get_tuples_inserted" (Oid) -> Int8, true, "How many rows were added to a table.";
    TuplesUpdated = "pg_stat_get_tuples_updated" (Oid) -> Int8, true, "How many rows of a table were changed.";
    TuplesDeleted = "pg_stat_get_tuples_deleted" (Oid) -> Int8, true, "How many rows of a table were deleted.";
    TuplesInPlace = "pg_stat_get_tuples_hot_updated" (Oid) -> Int8, true, "How many were changed without an index.";
    SinceAnalyze = "pg_stat_get_mod_since_analyze" (Oid) -> Int8, true, "How many rows of a table were written.";
    DatabaseBackends = "pg_stat_get_db_numbackends" (Oid) -> Int4, true, "How many sessions are in a database.";
    DatabaseCommits = "pg_stat_get_db_xact_commit" (Oid) -> Int8, true, "How many transactions were committed there.";
    DatabaseRollbacks = "pg_stat_get_db_xact_rollback" (Oid) -> Int8, true, "How many were rolled back there.";
    DatabaseDeadlocks = "pg_stat_get_db_deadlocks" (Oid) -> Int8, true, "How many deadlocks were found there.";
    ResetStatistics = "pg_stat_reset" () -> Void, true, "Counts the database from now on.";
    ResetShared = "pg_stat_reset_shared" (Text) -> Void, true, "Counts what databases share from now on: nothing.";
    ResetRelation = "pg_stat_reset_single_table_counters" (Oid) -> Void, true, "Counts a relation from now on.";
    ResetStatements = "pg_stat_statements_reset" () | (Oid, Oid, Int8) -> Void, true, "Forgets what statements took.";
    ClearStatistics = "pg_stat_clear_snapshot" () -> Void, true, "Has statistics read again: they always are.";
    FlushStatistics = "pg_stat_force_next_flush" () -> Void, true, "Has others see what was counted: they always do.";
    LiveTuples = "pg_stat_get_live_tuples" (Oid) -> Int8, true, "About how many rows a table has.";
    SequenceLastValue = "pg_sequence_last_value" (Regclass) -> Int8, true, "The last value of a sequence.";
    OperatorIsVisible = "pg_operator_is_visible" (Oid) -> Bool, false, "Whether an operator is found without its schema.";
    OperatorClassIsVisible = "pg_opclass_is_visible" (Oid) -> Bool, false, "The same of an operator class.";
    OperatorFamilyIsVisible = "pg_opfamily_is_visible" (Oid) -> Bool, false, "The same of an operator family.";
    CollationIsVisible = "pg_collation_is_visible" (Oid) -> Bool, false, "The same of a collation.";
    ConversionIsVisible = "pg_conversion_is_visible" (Oid) -> Bool, false, "The same of a conversion.";
    StatisticsAreVisible = "pg_statistics_obj_is_visible" (Oid) -> Bool, false, "The same of extended statistics.";
    SearchConfigIsVisible = "pg_ts_config_is_visible" (Oid) -> Bool, false, "The same of a configuration of text search.";
    SearchDictIsVisible = "pg_ts_dict_is_visible" (Oid) -> Bool, false, "The same of a dictionary.";
    SearchParserIsVisible = "pg_ts_parser_is_visible" (Oid) -> Bool, false, "The same of a parser.";
    SearchTemplateIsVisible = "pg_ts_template_is_visible" (Oid) -> Bool, false, "The same of a template.";
    ToRegprocedure = "to_regprocedure" (Text) -> Regprocedure, false, "A function's id, null if there is none.";
    CurrentLsn = "pg_current_wal_lsn" () -> PgLsn, true, "How far the primary's log is filled.";
    InsertLsn = "pg_current_wal_insert_lsn" () -> PgLsn, true, "How far LSNs are handed out.";
    FlushLsn = "pg_current_wal_flush_lsn" () -> PgLsn, true, "How far the primary's log is durable.";
    ReceiveLsn = "pg_last_wal_receive_lsn" () -> PgLsn, true, "How far this standby has persisted its primary's log.";
    ReplayLsn = "pg_last_wal_replay_lsn" () -> PgLsn, true, "How far readers of this standby see.";
    ReplayTime = "pg_last_xact_replay_timestamp" () -> Timestamptz, true, "How old what readers of this standby see may be.";
    ReplayPaused = "pg_is_wal_replay_paused" () -> Bool, true, "Whether replay is halted: it never is.";
    BlockingPids = "pg_blocking_pids" (Int4) -> Int4Array, true, "The sessions that one waits for.";
    AdvisoryLock = "pg_advisory_lock" (Int8) | (Int4, Int4) -> Void, true, "Locks a number until the session ends.";
    AdvisoryLockShared = "pg_advisory_lock_shared" (Int8) | (Int4, Int4) -> Void, true, "The same, with others.";
    AdvisoryTry = "pg_try_advisory_lock" (Int8) | (Int4, Int4) -> Bool, true, "The same, if nobody has it.";
    AdvisoryTryShared = "pg_try_advisory_lock_shared" (Int8) | (Int4, Int4) -> Bool, true, "The same, with others.";
    AdvisoryTransaction = "pg_advisory_xact_lock" (Int8) | (Int4, Int4) -> Void, true, "Locks a number until the transaction ends.";
    AdvisoryTransactionShared = "pg_advisory_xact_lock_shared" (Int8) | (Int4, Int4) -> Void, true, "The same, with others.";
    AdvisoryTransactionTry = "pg_try_advisory_xact_lock" (Int8) | (Int4, Int4) -> Bool, true, "The same, if nobody has it.";
    AdvisoryTransactionTryShared = "pg_try_advisory_xact_lock_shared" (Int8) | (Int4, Int4) -> Bool, true, "The same, with others.";
    AdvisoryUnlock = "pg_advisory_unlock" (Int8) | (Int4, Int4) -> Bool, true, "Releases a number that the session has locked.";
    AdvisoryUnlockShared = "pg_advisory_unlock_shared" (Int8) | (Int4, Int4) -> Bool, true, "The same, of what it shares.";
    AdvisoryUnlockAll = "pg_advisory_unlock_all" () -> Void, true, "Releases all numbers that the session has locked.";
    Notify = "pg_notify" (Text, Text) -> Void, true, "Notifies a channel when the transaction commits.";
    NotificationQueueUsage = "pg_notification_queue_usage" () -> Float8, true, "How much of what can wait for a session does.";
    ExportSnapshot = "pg_export_snapshot" () -> Text, true, "Lets other sessions see what this one sees.";
    CurrentTransaction = "txid_current" () -> Int8, false, "A number that no other transaction has.";
    CurrentTransactionId = "pg_current_xact_id" () -> Int8, false, "The same.";
    AssignedTransaction = "txid_current_if_assigned" () -> Int8, true, "The transaction's number: it gets one when it commits.";
    JitAvailable = "pg_jit_available" () -> Bool, false, "Whether expressions are compiled.";
    LastCommit = "freshet_last_commit" () -> Text, true, "The LSN of the session's last commit.";
    TransactionToken = "freshet_transaction_token" () -> Uuid, true, "The transaction's name, to ask for its outcome.";
    TransactionOutcome = "freshet_transaction_outcome" (Uuid) -> Text, true, "What became of a transaction.";
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

    /// The name by which SQL calls it.
    pub fn name(self) -> &'static str {
        ALL.iter().find(|(.., function)| *function == self).map_or("", |(name, ..)| name)
    }

    /// All of them, a signature each: names, what they take, what they return, and whether they may
    /// have another value the next time.
    pub fn all() -> impl Iterator<Item = (&'static str, &'static [Kind], Kind, bool)> {
        ALL.iter().map(|(name, arguments, result, volatile, _)| (*name, *arguments, *result, *volatile))
    }

    /// The names of all functions of the session.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ALL.iter().map(|(name, ..)| *name)
    }
}
