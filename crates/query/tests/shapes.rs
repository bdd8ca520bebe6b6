//! A client that has prepared a statement never gets a shape that it was not told.
//!
//! Drivers prepare a statement once and run it again without asking what it returns. The model is
//! PostgreSQL's rule: a statement keeps the types of its parameters, and as long as it would return
//! other columns than its client was told, it fails with 0A000, of the routine by which drivers
//! know that they have to prepare it again. What it would return now is what another session is
//! told that prepares it for the first time, with those types. Where PostgreSQL 15 is installed the
//! model is tried on it, too.
//!
//!     FRESHET_SEED=7 FRESHET_FACTOR=10 cargo test -p freshet-query --test main shapes::

use std::collections::VecDeque;

use crate::common::{
    SqlNode, eventually,
    judge::Judge,
    wire::{Part, Wire},
};
use crate::differential::generate::random::Random;
use crate::session::wire::{self as raw, bind, describe, execute, field, message, parse, query, sync};
use freshet_testing::{Missing, skip};

/// How many statements are run against changes of shape.
const RUNS: usize = 3_000;

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).map_or(otherwise, |it| it.parse().unwrap_or_else(|_| panic!("{variable} is a number")))
}

/// What a client relies on: the types of parameters; names, types and modifiers of columns.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shape {
    parameters: Vec<u32>,
    columns: Option<Vec<(String, u32, i32)>>,
}

/// What happens to a statement: an error, or the number of values in each of its rows, and the
/// rows.
type Outcome = Result<Vec<Vec<Option<Vec<u8>>>>, String>;

fn numbers(body: &[u8]) -> Vec<u32> {
    body.chunks_exact(4).map(|four| u32::from_be_bytes(four.try_into().unwrap())).collect()
}

fn columns(mut body: &[u8]) -> Vec<(String, u32, i32)> {
    let count = u16::from_be_bytes([body[0], body[1]]);
    body = &body[2..];
    let column = |_| {
        let end = body.iter().position(|byte| *byte == 0).unwrap();
        let (name, rest) = (String::from_utf8(body[..end].to_vec()).unwrap(), &body[end + 1..]);
        body = &rest[18..];
        let four = |at: usize| rest[at..at + 4].try_into().unwrap();
        (name, u32::from_be_bytes(four(6)), i32::from_be_bytes(four(12)))
    };
    (0..count).map(column).collect()
}

fn row(body: &[u8]) -> Vec<Option<Vec<u8>>> {
    let mut rest = &body[2..];
    let value = |_| {
        let (length, behind) = rest.split_first_chunk().unwrap();
        rest = behind;
        let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
        let (value, behind) = rest.split_at(length);
        rest = behind;
        Some(value.to_vec())
    };
    (0..u16::from_be_bytes([body[0], body[1]])).map(value).collect()
}

/// The error in an answer: its state, and for that of a changed result its routine.
fn error(answers: &[(char, Vec<u8>)]) -> Option<String> {
    let (_, body) = answers.iter().find(|(kind, _)| *kind == 'E')?;
    let state = field(body, 'C').unwrap();
    let routine = field(body, 'R').filter(|_| state == "0A000").unwrap_or_default();
    Some(format!("{state} {routine}").trim_end().to_owned())
}

const CHANGED: &str = "0A000 RevalidateCachedQuery";

fn outcome(answers: &[(char, Vec<u8>)]) -> Outcome {
    match error(answers) {
        Some(error) => Err(error),
        None => Ok(answers.iter().filter(|(kind, _)| *kind == 'D').map(|(_, body)| row(body)).collect()),
    }
}

fn described(answers: &[(char, Vec<u8>)]) -> Shape {
    let of = |wanted: char| answers.iter().find(|(kind, _)| *kind == wanted).map(|(_, body)| body);
    Shape {
        parameters: of('t').map_or_else(Vec::new, |body| numbers(&body[2..])),
        columns: of('T').map(|body| columns(body)),
    }
}

/// Parse, with types of parameters.
fn parse_with(name: &str, sql: &str, types: &[u32]) -> Vec<u8> {
    let mut body = format!("{name}\0{sql}\0").into_bytes();
    body.extend(u16::try_from(types.len()).unwrap().to_be_bytes());
    body.extend(types.iter().flat_map(|ty| ty.to_be_bytes()));
    message(b'P', &body)
}

/// What a session gets that prepares a statement for the first time.
fn shape_of(wire: &mut Wire, name: &str, sql: &str, types: &[u32]) -> Result<Shape, String> {
    let answers = wire.exchange(&[parse_with(name, sql, types), describe('S', name), sync()].concat());
    error(&answers).map_or_else(|| Ok(described(&answers)), Err)
}

/// How a client goes about statements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Driver {
    /// As pgjdbc does: told once, then Bind and Execute.
    Bare,
    /// As psycopg and node-postgres do: it has the portal described each time.
    Portal,
    /// As asyncpg does when it is told to: it has the statement described each time.
    Statement,
    /// As pgx does: in binary.
    Binary,
    /// The statement without a name.
    Unnamed,
    /// PREPARE and EXECUTE.
    Sql,
    /// EXECUTE, itself prepared.
    SqlPrepared,
    /// A cursor's rows in parts.
    Parts,
}

const DRIVERS: [Driver; 8] = [
    Driver::Bare,
    Driver::Portal,
    Driver::Statement,
    Driver::Binary,
    Driver::Unnamed,
    Driver::Sql,
    Driver::SqlPrepared,
    Driver::Parts,
];

/// A statement that a client has prepared.
struct Cached {
    driver: Driver,
    name: String,
    sql: &'static str,
    shape: Shape,
}

impl Cached {
    /// Prepares it, unless it makes no sense.
    fn prepare(wire: &mut Wire, driver: Driver, name: &str, sql: &'static str) -> Option<Self> {
        let name = if driver == Driver::Unnamed { String::new() } else { name.to_owned() };
        let shape = shape_of(wire, &name, sql, &[]).ok()?;
        if matches!(driver, Driver::Sql | Driver::SqlPrepared) {
            // The server knows it by PREPARE alone, with the types that its parameters have.
            wire.exchange(&[raw::close('S', &name), sync()].concat());
            let types = shape.parameters.iter().map(|oid| type_name(*oid)).collect::<Vec<_>>().join(", ");
            let types = if types.is_empty() { types } else { format!("({types})") };
            assert_eq!(error(&wire.exchange(&query(&format!("PREPARE {name}{types} AS {sql}")))), None, "{sql}");
            if driver == Driver::SqlPrepared {
                let answers = wire.exchange(&[parse(&format!("x{name}"), &execution(&name, &shape)), sync()].concat());
                assert_eq!(error(&answers), None, "{sql}");
            }
        }
        Some(Self { driver, name, sql, shape })
    }

    /// Runs it as its client does.
    fn run(&self, wire: &mut Wire) -> Outcome {
        let values = vec![Some("1"); self.shape.parameters.len()];
        let bound = bind("", &self.name, &values);
        let messages = match self.driver {
            Driver::Bare | Driver::Unnamed => [bound, execute("", 0), sync()].concat(),
            Driver::Portal => [bound, describe('P', ""), execute("", 0), sync()].concat(),
            Driver::Statement => [describe('S', &self.name), bound, execute("", 0), sync()].concat(),
            Driver::Binary => {
                let width = self.shape.columns.as_ref().map_or(0, Vec::len);
                let mut bound = bound;
                // Each column has a format of its own: all in binary.
                bound.truncate(bound.len() - 2);
                let mut body = bound.split_off(5);
                body.extend(u16::try_from(width).unwrap().to_be_bytes());
                body.extend((0..width).flat_map(|_| 1_u16.to_be_bytes()));
                [message(b'B', &body), execute("", 0), sync()].concat()
            }
            Driver::Sql => query(&execution(&self.name, &self.shape)),
            Driver::SqlPrepared => [bind("", &format!("x{}", self.name), &[]), execute("", 0), sync()].concat(),
            // What returns nothing is run once.
            Driver::Parts if self.shape.columns.is_none() => [bound, execute("", 0), sync()].concat(),
            Driver::Parts => [bound, execute("", 1), execute("", 1), execute("", 0), sync()].concat(),
        };
        let answers = wire.exchange(&messages);
        if let Some((_, body)) = answers.iter().find(|(kind, _)| *kind == 'T') {
            let columns = Some(columns(body));
            assert_eq!(columns, self.shape.columns, "{:?}: {} is described otherwise", self.driver, self.sql);
        }
        outcome(&answers)
    }
}

fn execution(name: &str, shape: &Shape) -> String {
    let values = vec!["1"; shape.parameters.len()].join(", ");
    if values.is_empty() { format!("EXECUTE {name}") } else { format!("EXECUTE {name} ({values})") }
}

fn type_name(oid: u32) -> &'static str {
    match oid {
        20 => "bigint",
        23 => "int",
        25 => "text",
        1043 => "varchar",
        1700 => "numeric",
        other => panic!("type {other}"),
    }
}

/// What clients prepare. `$1` is always compared with the column `a`, or put there.
const STATEMENTS: &[&str] = &[
    "select * from t",
    "select * from t where a = $1",
    "select b, a from t",
    "select a from t order by 1",
    "select t.*, 1 as one from t",
    "select count(*) from t",
    "select max(a), min(b) from t",
    "select x.* from (select * from t) x order by 1",
    "with q as (select * from t) select * from q",
    "select * from t union all select * from t",
    "select * from t one left join t other on one.a = other.a",
    "select * from v",
    "select * from v where a = $1",
    "select * from v2",
    "select * from s1.t",
    "select * from t for update",
    "insert into t (a) values ($1) returning *",
    "insert into t (a) values ($1)",
    "update t set a = a where a = $1 returning *",
    "update t set b = b returning b as c",
    "delete from t where a = $1 returning *",
    "delete from t where a = $1",
    "select coalesce(b, b) from t",
    "select array_agg(a) from t",
    "select (select a from t limit 1)",
];

/// Changes of what there is; some are refused.
const CHANGES: &[&str] = &[
    "alter table t add column c int default 7",
    "alter table t add column d text",
    "alter table t drop column c",
    "alter table t drop column d",
    "alter table t drop column b",
    "alter table t add column b int",
    "alter table t add column b varchar(5)",
    "alter table t drop column b cascade",
    "alter table t alter column b type bigint",
    "alter table t alter column b type varchar(9)",
    "alter table t alter column b type int using 1",
    "alter table t alter column b type varchar(5)",
    "alter table t alter column b type numeric(6,2) using 1",
    "alter table t alter column a type bigint",
    "alter table t alter column a type int",
    "alter table t alter column a type text using 1::text",
    "alter table t alter column a type int using 1",
    "alter table t rename column b to e",
    "alter table t rename column e to b",
    "alter table t rename to u",
    "alter table u rename to t",
    "drop table t cascade",
    "create table s1.t (a int, b int); insert into s1.t values (1, 2), (2, 3)",
    "create table s1.t (b int, a int); insert into s1.t values (1, 2), (2, 1)",
    "create table s2.t (a int, b text); insert into s2.t values (1, 'x')",
    "drop table s2.t cascade",
    "create view v as select * from t",
    "create or replace view v as select *, 1 as more from t",
    "create or replace view v as select a, b from t",
    "drop view v cascade",
    "create view v as select a from t",
    "create view v2 as select * from v",
    "drop view v2",
    // Statements whose result stays what it was.
    "create index on t (a)",
    "insert into t (a) values (1)",
    "create table other (x int)",
    "drop table other",
];

/// Search paths. They have nothing in common: PostgreSQL does not look again for a table that is
/// made where it would have been found before another one.
const PATHS: [&str; 2] = ["s1", "s2"];

/// Sessions with a server: who has prepared, who changes, and one that has prepared nothing.
struct Scene {
    client: Wire,
    other: Wire,
    fresh: Wire,
    path: &'static str,
    /// The client is in a transaction block.
    inside: bool,
    cached: Vec<Cached>,
    names: usize,
    /// What was done last.
    history: VecDeque<String>,
    changes: usize,
}

impl Scene {
    fn new(connect: &dyn Fn() -> Wire) -> Self {
        let (mut client, mut other, fresh) = (connect(), connect(), connect());
        let made = other.query(
            "CREATE SCHEMA s1; CREATE SCHEMA s2; SET search_path = s1; SET lock_timeout = '20ms';
             CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 2), (2, 3)",
        );
        assert_eq!(made.state(), None);
        client.query("SET search_path = s1");
        let (cached, history) = Default::default();
        Self { client, other, fresh, path: PATHS[0], inside: false, cached, names: 0, history, changes: 0 }
    }

    fn note(&mut self, what: String) {
        if self.history.len() > 15 {
            self.history.pop_front();
        }
        self.history.push_back(what);
    }

    /// Ends the client's transaction, if it is in one.
    fn leave(&mut self) {
        if std::mem::take(&mut self.inside) {
            self.client.exchange(&alone("ROLLBACK"));
        }
    }

    fn prepare(&mut self, random: &mut Random) {
        self.leave();
        self.names += 1;
        let name = format!("p{}", self.names);
        let driver = DRIVERS[random.below(DRIVERS.len())];
        let sql = random.one(STATEMENTS);
        if driver == Driver::Unnamed {
            self.cached.retain(|cached| cached.driver != Driver::Unnamed);
        } else if self.cached.len() > 8 {
            self.cached.remove(random.below(self.cached.len()));
        }
        if let Some(cached) = Cached::prepare(&mut self.client, driver, &name, sql) {
            self.note(format!("{driver:?} prepares {name}: {sql}"));
            // What is told to prepare another one takes away the one without a name.
            if driver == Driver::Sql || driver == Driver::SqlPrepared {
                self.cached.retain(|cached| cached.driver != Driver::Unnamed);
            }
            self.cached.push(cached);
        }
    }

    /// Another session changes what there is, or the client where it looks for it.
    fn change(&mut self, random: &mut Random) {
        if random.chance(10) {
            self.leave();
            self.path = PATHS[random.below(PATHS.len())];
            let set = format!("SET search_path = {}", self.path);
            self.client.exchange(&alone(&set));
            self.note(set);
            return;
        }
        let change = random.one(CHANGES);
        let answer = self.other.query(change);
        self.note(format!("{change}: {}", answer.state().unwrap_or("done")));
        self.changes += usize::from(answer.state().is_none());
    }

    /// Runs a statement that was prepared, and compares what happens with the rule. Returns whether
    /// it was refused for its shape.
    fn run(&mut self, random: &mut Random) -> bool {
        if self.cached.is_empty() {
            return false;
        }
        let at = random.below(self.cached.len());
        if random.chance(20) && !self.inside {
            self.inside = true;
            self.client.exchange(&alone("BEGIN"));
            self.note("BEGIN".to_owned());
        }
        let cached = &self.cached[at];
        self.fresh.query(&format!("SET search_path = {}", self.path));
        let now = shape_of(&mut self.fresh, "fresh", cached.sql, &cached.shape.parameters);
        self.fresh.exchange(&[raw::close('S', "fresh"), sync()].concat());
        let expected = match &now {
            Err(error) => Some(error.as_str()),
            Ok(now) if now.columns != cached.shape.columns => Some(CHANGED),
            Ok(_) => None,
        };
        // As often as it is tried.
        let mut refused = false;
        for _ in 0..random.between(1, 3) {
            let found = self.cached[at].run(&mut self.client);
            let Cached { driver, sql, shape, .. } = &self.cached[at];
            let history = &self.history;
            let about = || format!("{driver:?}: {sql}\n  told {shape:?}\n  now {now:?}\n  after {history:#?}");
            match (&found, expected) {
                (Err(found), Some(expected)) => assert_eq!(found, expected, "{}", about()),
                (Err(found), None) => panic!("{found}: {}", about()),
                (Ok(_), Some(expected)) => panic!("it was to fail with {expected}: {}", about()),
                (Ok(rows), None) => {
                    let width = shape.columns.as_ref().map_or(0, Vec::len);
                    assert!(rows.iter().all(|row| row.len() == width), "{rows:?}: {}", about());
                }
            }
            refused |= expected == Some(CHANGED);
            if expected.is_some() && self.inside {
                self.leave();
            }
        }
        let Cached { driver, name, .. } = &self.cached[at];
        let (driver, note) = (*driver, format!("{driver:?} runs {name}: {expected:?}"));
        self.note(note);
        // A client that is told so heals: it prepares again.
        if refused && random.chance(50) {
            self.leave();
            let Cached { driver, sql, .. } = self.cached.remove(at);
            self.names += 1;
            let name = format!("p{}", self.names);
            self.cached.extend(Cached::prepare(&mut self.client, driver, &name, sql));
        }
        // Simple queries take away the statement without a name.
        if driver == Driver::Sql || refused && driver == Driver::SqlPrepared {
            self.cached.retain(|cached| cached.driver != Driver::Unnamed);
        }
        refused
    }
}

/// A statement by itself, which leaves the one without a name alone.
fn alone(sql: &str) -> Vec<u8> {
    [parse("alone", sql), bind("", "alone", &[]), execute("", 0), raw::close('S', "alone"), sync()].concat()
}

/// Runs the rule against a server.
fn hold_to_the_rule(connect: &dyn Fn() -> Wire, what: &str) {
    let (seed, factor) = (number("FRESHET_SEED", 1), number("FRESHET_FACTOR", 1));
    println!("FRESHET_SEED={seed}");
    let mut random = Random::new(seed, "shapes");
    let mut scene = Scene::new(connect);
    let (mut runs, mut refused) = (0, 0);
    while runs < RUNS * usize::try_from(factor).unwrap() {
        match random.below(10) {
            0 => scene.prepare(&mut random),
            1..4 => scene.change(&mut random),
            _ => {
                runs += 1;
                refused += usize::from(scene.run(&mut random));
            }
        }
    }
    println!("{what}: {runs} runs, {} changes; {refused} runs refused for their shape", scene.changes);
    assert!(refused > RUNS / 50, "shapes hardly change");
}

#[test]
fn a_shape_holds_until_the_client_prepares_again() {
    let node = SqlNode::in_memory();
    let address = node.address();
    hold_to_the_rule(&move || Wire::tcp(address), "Freshet");
}

#[test]
fn the_rule_is_postgresqls() {
    let judge = match Judge::start() {
        Ok(judge) => judge,
        Err(why) => return skip(Missing::Tool, "the rule of shapes as PostgreSQL has it", why),
    };
    let socket = judge.socket();
    hold_to_the_rule(&move || Wire::unix(&socket), "PostgreSQL");
}

/// A simple query tells its columns when nobody can change them any more.
#[test]
fn what_has_waited_for_a_change_of_its_table_returns_the_new_shape() {
    let node = SqlNode::in_memory();
    let (mut client, mut other) = (Wire::tcp(node.address()), Wire::tcp(node.address()));
    other.query("CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 2)");
    for sql in
        ["UPDATE t SET a = a RETURNING *", "SELECT * FROM t FOR UPDATE", "COPY (DELETE FROM t RETURNING *) TO STDOUT"]
    {
        other.query("BEGIN; ALTER TABLE t ADD COLUMN c int DEFAULT 7");
        client.ask(sql, "");
        eventually("it waits", || {
            let waits = other.query("SELECT 1 FROM pg_locks WHERE NOT granted");
            waits.parts.iter().any(|part| matches!(part, Part::Row(_)))
        });
        other.query("COMMIT");
        let answer = client.answer();
        let shown = answer.to_string();
        assert!(answer.state().is_none() && shown.contains('7'), "{sql}: {shown}");
        for part in &answer.parts {
            match part {
                Part::Columns(columns) => assert_eq!(columns.len(), 3, "{sql}: {shown}"),
                Part::Row(row) => assert_eq!(row.len(), 3, "{sql}: {shown}"),
                _ => {}
            }
        }
        other.query("ALTER TABLE t DROP COLUMN c");
    }
}

/// As pgjdbc finds out: in autocommit, without Describe, as often as it tries.
#[test]
fn a_changed_result_is_refused_until_it_is_prepared_again() {
    let node = SqlNode::in_memory();
    let (mut client, mut other) = (Wire::tcp(node.address()), Wire::tcp(node.address()));
    other.query("CREATE TABLE t (id int, price int, qty int); INSERT INTO t VALUES (1, 100, 5)");
    let run = |client: &mut Wire| outcome(&client.exchange(&[bind("", "s", &[]), execute("", 0), sync()].concat()));
    client.exchange(&[parse("s", "select * from t"), describe('S', "s"), sync()].concat());
    assert_eq!(run(&mut client).unwrap()[0].len(), 3);
    other.query("ALTER TABLE t DROP COLUMN price");
    for _ in 0..5 {
        assert_eq!(run(&mut client).unwrap_err(), CHANGED);
    }
    // What it would return is again what was told.
    other.query("DROP TABLE t; CREATE TABLE t (id int, price int, qty int); INSERT INTO t VALUES (2, 3, 4)");
    assert_eq!(run(&mut client).unwrap()[0].len(), 3);
    other.query("ALTER TABLE t ALTER COLUMN price TYPE bigint");
    assert_eq!(run(&mut client).unwrap_err(), CHANGED);
    // In a pipeline, everything behind the error is skipped.
    let again = [bind("", "s", &[]), execute("", 0)].concat();
    let all = [again.clone(), again, parse("u", "select 1"), sync()].concat();
    assert_eq!(raw::outline(&client.exchange(&all)), "E0A000 ZI");
    client.exchange(&[raw::close('S', "s"), parse("s", "select * from t"), sync()].concat());
    assert_eq!(run(&mut client).unwrap()[0].len(), 3);
    // As many formats as columns, or one, or none.
    let mut formats = b"\0s\0\0\0\0\0\0\x02\0\0\0\0".to_vec();
    let answer = client.exchange(&[message(b'B', &formats), sync()].concat());
    assert_eq!(error(&answer).unwrap(), "08P01");
    formats.truncate(formats.len() - 2);
    formats[8] = 1;
    assert_eq!(raw::outline(&client.exchange(&[message(b'B', &formats), sync()].concat())), "2 ZI");
}
