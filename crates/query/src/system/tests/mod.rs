//! The catalogs of a small schema.

mod contents;
mod functions;
mod shapes;

use std::sync::Arc;

use freshet_engine::{Database, NodeStatus};
use freshet_postgres::{Encryption, Origin, Peer};
use freshet_sql::{
    Kind, SqlError, Type, Value,
    general::{Filter, Relation, Scan, Test},
    types::{EvalContext, Timestamp, text},
};

use super::{
    SystemView,
    activity::{Identity, Registered, Registry, SessionInfo, Wait},
    size::{self, TableSize},
};
use crate::{
    advisory::{AdvisoryKey, AdvisoryLock},
    locks::{LockMode, TableLock},
    relations::{Reader, Snapshot},
    schema::{
        self, Check, Column, Deferral, Entry, FIRST_DATABASE, FIRST_ROLE, ForeignKey, Grant, Identity as IdentityKind,
        Index, IndexColumn, IndexConstraint, Namespace, Oid, PG_CATALOG, PUBLIC, ReferentialAction, Role, Schema,
        Sequence, Table, TableInfo, View, privilege, relation::engine_table,
    },
    sequence::Position,
};

/// The role that owns all but what is said to be another's.
pub const OWNER: Oid = 16384;
/// A role that may read one table.
pub const READER: Oid = 16385;
/// The schema `app`.
pub const APP: Oid = 16390;
/// `app.orders`.
pub const ORDERS: Oid = 16400;
/// `public.Lines`.
pub const LINES: Oid = 16410;
/// `public.recent`.
pub const RECENT: Oid = 16420;
/// `app.orders_id_seq`.
pub const ORDERS_ID: Oid = 16430;
/// `public.counter`.
pub const COUNTER: Oid = 16431;

/// A server that nobody else sees.
#[derive(Debug)]
pub struct Server {
    database: Database,
    registry: Arc<Registry>,
}

impl SystemView for Server {
    fn is_standby(&self) -> bool {
        false
    }

    fn started(&self) -> Timestamp {
        Timestamp(1)
    }

    fn sessions(&self) -> Vec<Arc<SessionInfo>> {
        self.registry.all()
    }

    fn registry(&self) -> Option<&Registry> {
        Some(&self.registry)
    }

    fn table_locks(&self) -> Vec<TableLock> {
        vec![TableLock { place: 3, table: ORDERS, mode: LockMode::ShareRowExclusive, granted: true }]
    }

    fn advisory_locks(&self) -> Vec<AdvisoryLock> {
        vec![AdvisoryLock { key: AdvisoryKey::one(-1), place: 4, shared: true, granted: false }]
    }

    fn wait(&self, place: usize) -> Option<Wait> {
        (place == 3).then(|| Wait { event: "relation", by: vec![3, 9] })
    }

    fn status(&self) -> Option<NodeStatus> {
        None
    }

    fn approximate_rows(&self, _: &TableInfo) -> Option<u64> {
        None
    }

    fn table_size(&self, info: &TableInfo) -> Option<TableSize> {
        size::measure(&self.database, info)
    }

    fn database_size(&self, _: Oid) -> Option<u64> {
        None
    }

    fn sequence_position(&self, sequence: &Sequence) -> Result<Position, SqlError> {
        Ok(Position { value: 40 + i64::from(sequence.oid == COUNTER), called: sequence.oid == COUNTER })
    }
}

/// The schema, a server, and a session.
pub struct Scene {
    pub snapshot: Snapshot,
    pub database: Database,
    pub session: Registered,
}

fn role(oid: Oid, name: &str, superuser: bool) -> Entry {
    Entry::Role(Arc::new(Role {
        oid,
        name: name.to_owned(),
        superuser,
        login: true,
        create_role: superuser,
        create_database: superuser,
        verifier: superuser.then(|| "SCRAM-SHA-256$x".to_owned()),
        inherit: true,
        member_of: Vec::new(),
        connection_limit: None,
        valid_until: None,
    }))
}

fn index(oid: Oid, name: &str, columns: &[(u16, bool)], constraint: IndexConstraint) -> Index {
    let columns = columns.iter().map(|(column, descending)| IndexColumn {
        descending: *descending,
        nulls_first: *descending,
        ..IndexColumn::new(*column)
    });
    let unique = constraint != IndexConstraint::None;
    Index { constraint, ..Index::new(oid, name.to_owned(), columns.collect(), unique) }
}

fn orders() -> Table {
    let mut id = Column::new("id", Type::INT8);
    (id.not_null, id.identity) = (true, Some(IdentityKind::Always));
    id.default = Some(format!("nextval('{ORDERS_ID}'::REGCLASS)"));
    let mut name = Column::new("name", Type::varchar(40).unwrap());
    name.default = Some("'none'::character varying".to_owned());
    let mut gone = Column::new("gone", Type::INT4);
    gone.dropped = true;
    let price = Column::new("price", Type::numeric(10, 2).unwrap());
    let mut at = Column::new("At", Type::TIMESTAMPTZ);
    at.not_null = true;
    let tags = Column::new("tags", Type::of(Kind::TextArray));
    Table {
        oid: ORDERS,
        namespace: APP,
        name: "orders".to_owned(),
        owner: OWNER,
        columns: vec![id, name, gone, price, at, tags],
        rows: "sql.orders".to_owned(),
        indexes: vec![
            index(16401, "orders_pkey", &[(0, false)], IndexConstraint::Primary),
            index(16402, "orders_name_key", &[(1, false)], IndexConstraint::Unique),
            index(16403, "orders_at", &[(4, true), (1, false)], IndexConstraint::None),
        ],
        checks: vec![Check { oid: 16404, name: "positive".to_owned(), condition: "price > 0".to_owned() }],
        foreign_keys: Vec::new(),
        grants: vec![
            Grant { role: 0, column: None, privileges: privilege::SELECT, grantable: 0, grantor: OWNER },
            Grant {
                role: READER,
                column: None,
                privileges: privilege::INSERT | privilege::SELECT,
                grantable: privilege::INSERT,
                grantor: OWNER,
            },
        ],
    }
}

fn lines() -> Table {
    let mut key = Column::new("row id", Type::UUID);
    (key.hidden, key.not_null) = (true, true);
    let order = Column::new("order_id", Type::INT8);
    let letter = Column::new("letter", Type::char(3).unwrap());
    Table {
        oid: LINES,
        namespace: PUBLIC,
        name: "Lines".to_owned(),
        owner: OWNER,
        columns: vec![order, letter, key],
        rows: "sql.lines".to_owned(),
        indexes: vec![Index { unique: true, ..index(0, "hidden", &[(2, false)], IndexConstraint::None) }],
        checks: Vec::new(),
        foreign_keys: vec![ForeignKey {
            oid: 16411,
            name: "lines_order".to_owned(),
            columns: vec![0],
            parent: ORDERS,
            parent_columns: vec![0],
            on_delete: ReferentialAction::Cascade,
            on_update: ReferentialAction::NoAction,
            deferral: Deferral::Never,
        }],
        grants: Vec::new(),
    }
}

fn sequence(oid: Oid, namespace: Oid, name: &str, owned_by: Option<(Oid, u16)>) -> Entry {
    Entry::Sequence(Arc::new(Sequence {
        oid,
        namespace,
        name: name.to_owned(),
        owner: OWNER,
        state: u64::from(oid),
        ty: Type::INT8,
        start: 1,
        increment: 1,
        minimum: 1,
        maximum: i64::MAX,
        cache: 1,
        cycle: false,
        owned_by,
        grants: Vec::new(),
    }))
}

impl Scene {
    /// As the owner of the tables sees it.
    pub fn new() -> Self {
        let database = Database::volatile(16);
        let mut schema = Schema::empty(FIRST_DATABASE);
        schema.enter(Entry::Database(Arc::new(schema::Database::new(FIRST_DATABASE, "shop", FIRST_ROLE))));
        schema.enter(role(FIRST_ROLE, "admin", true));
        schema.enter(role(OWNER, "owner", false));
        schema.enter(role(READER, "a reader", false));
        let usage = Grant { role: 0, column: None, privileges: privilege::USAGE, grantable: 0, grantor: FIRST_ROLE };
        for (oid, name, owner, grants) in [(PUBLIC, "public", FIRST_ROLE, vec![usage]), (APP, "app", OWNER, Vec::new())]
        {
            schema.enter(Entry::Namespace(Arc::new(Namespace { oid, name: name.to_owned(), owner, grants })));
        }
        for table in [orders(), lines()] {
            let rows = database.create_table(&engine_table(&table).unwrap()).unwrap();
            schema.enter(Entry::Table(Arc::new(TableInfo::new(table, rows).unwrap())));
        }
        schema.enter(Entry::View(Arc::new(View {
            oid: RECENT,
            namespace: PUBLIC,
            name: "recent".to_owned(),
            owner: OWNER,
            columns: vec![("id".to_owned(), Type::INT8), ("n".to_owned(), Type::NAME)],
            query: "SELECT id, name::name AS n FROM app.orders".to_owned(),
            uses: vec![ORDERS],
            security_invoker: false,
            grants: Vec::new(),
        })));
        schema.enter(sequence(ORDERS_ID, APP, "orders_id_seq", Some((ORDERS, 0))));
        schema.enter(sequence(COUNTER, PUBLIC, "counter", None));
        let registry = Arc::new(Registry::default());
        let session = registry.enter(SessionInfo::new(Identity {
            pid: 77,
            place: 3,
            user: "owner",
            role: OWNER,
            database: (FIRST_DATABASE, "shop"),
            peer: &Peer {
                origin: Origin::Host("127.0.0.1:5000".parse().unwrap()),
                encryption: Some(Encryption { version: "TLSv1.3", cipher: "TLS_AES_256_GCM_SHA384", bits: 256 }),
                certificate: Some("owner".into()),
            },
        }));
        let snapshot = Snapshot {
            schema: Arc::new(schema),
            path: vec![PG_CATALOG, PUBLIC],
            role: OWNER,
            reader: Reader::Role(OWNER),
            database: "shop".into(),
            system: Arc::new(Server { database: database.clone(), registry }),
        };
        Self { snapshot, database, session }
    }

    /// As another role sees it.
    pub fn of_role(mut self, role: Oid) -> Self {
        (self.snapshot.role, self.snapshot.reader) = (role, Reader::Role(role));
        self
    }

    /// What a relation has in these columns, in rows that pass the tests, as text; null is `-`.
    pub fn read(&self, name: &str, columns: &str, tests: &[(&str, Test)]) -> Vec<String> {
        self.try_read(name, columns, tests).unwrap()
    }

    pub fn try_read(&self, name: &str, columns: &str, tests: &[(&str, Test)]) -> Result<Vec<String>, SqlError> {
        let (schema, name) = name.split_once('.').map_or((None, name), |(schema, name)| (Some(schema), name));
        let relation = super::relation(&self.snapshot, schema, name).unwrap();
        let number = |name: &str| {
            let found = relation.columns().iter().position(|column| column.name == name);
            found.unwrap_or_else(|| panic!("there is no column {name}"))
        };
        let filters = tests.iter().map(|(column, test)| Filter { column: number(column), test: test.clone() });
        let wanted: Vec<usize> = columns.split_ascii_whitespace().map(number).collect();
        let scan = Scan { columns: wanted.clone(), filters: filters.collect(), limit: None };
        let kinds: Vec<Kind> = wanted.iter().map(|number| relation.columns()[*number].ty.kind()).collect();
        let rows = rows(&*relation, scan)?;
        let context = EvalContext::default();
        let cell = |(kind, value): (&Kind, &Value)| match value {
            Value::Null => "-".to_owned(),
            value => text::to_text(*kind, value, &context).to_string(),
        };
        let line = |row: &Vec<Value>| kinds.iter().zip(row).map(cell).collect::<Vec<_>>().join("|");
        Ok(rows.iter().map(line).collect())
    }
}

/// All rows of a scan.
pub fn rows(relation: &dyn Relation, scan: Scan) -> Result<Vec<Vec<Value>>, SqlError> {
    let width = scan.columns.len();
    let mut rows = relation.scan(scan)?;
    let mut all = Vec::new();
    while rows.next(3, &mut |cells| {
        let row = (0..width).map(|number| Ok(cells.cell(number)?.to_value())).collect::<Result<_, SqlError>>()?;
        all.push(row);
        Ok(())
    })? {}
    Ok(all)
}

/// `column = value`.
pub fn is(value: impl super::sink::Cell) -> Test {
    Test::Equal(value.cell())
}
