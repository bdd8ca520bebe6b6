//! A query asks for permission at each place where it names a relation, with the columns that it
//! reads there and the role in whose name it reads.

use std::sync::{Arc, Mutex};

use freshet_sql::{
    SqlError, SqlState, Type,
    general::{Column, Filter, Named, Readable, Relation, Relations, Rows, Scan},
};

use crate::support::{parse_query, plan};

/// All that was asked, a line for each place.
type Asked = Arc<Mutex<Vec<String>>>;

/// A table or a view, as one reader sees it.
#[derive(Debug)]
struct Seen {
    what: String,
    columns: Vec<Column>,
    asked: Asked,
}

impl Readable for Seen {
    fn may_read(&self, columns: &[usize]) -> Result<(), SqlError> {
        let names = columns.iter().map(|column| self.columns[*column].name.as_str());
        let line = format!("{} {}", self.what, names.collect::<Vec<_>>().join(","));
        self.asked.lock().unwrap().push(line.trim_end().to_owned());
        if self.what.ends_with("secret") {
            return Err(SqlError::new(SqlState::INSUFFICIENT_PRIVILEGE, "no"));
        }
        Ok(())
    }
}

impl Relation for Seen {
    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn key(&self) -> &[usize] {
        &[0]
    }

    fn takes(&self, _: &Filter) -> bool {
        false
    }

    fn scan(&self, _: Scan) -> Result<Box<dyn Rows>, SqlError> {
        Err(SqlError::internal("nothing is run here"))
    }
}

/// Tables of three columns and a hidden one; `view` reads two tables in the name of its owner.
#[derive(Debug)]
struct Names {
    reader: &'static str,
    asked: Asked,
}

impl Relations for Names {
    fn named(&self, _: Option<&str>, name: &str) -> Result<Named, SqlError> {
        let column = |name: &str| Column { name: name.to_owned(), ty: Type::INT4, hidden: name == "hidden" };
        let what = format!("{}:{name}", self.reader);
        let seen = |columns: &[&str]| Seen {
            what,
            columns: columns.iter().copied().map(column).collect(),
            asked: Arc::clone(&self.asked),
        };
        Ok(match name {
            "view" => Named::View {
                query: Arc::new(*parse_query("SELECT t.id, u.a FROM t JOIN u ON u.id = t.id WHERE t.b > 0").unwrap()),
                relations: Arc::new(Self { reader: "owner", asked: Arc::clone(&self.asked) }),
                columns: ["x", "y"].map(column).into(),
                access: Arc::new(seen(&["x", "y"])),
            },
            _ => Named::Relation(Arc::new(seen(&["id", "a", "b", "hidden"]))),
        })
    }
}

#[test]
fn each_place_is_asked_for_what_is_read_there() {
    for (sql, expected) in [
        ("SELECT a FROM t", "me:t a"),
        ("SELECT * FROM t", "me:t id,a,b"),
        ("SELECT t.* FROM t, u", "me:t id,a,b / me:u"),
        ("SELECT hidden FROM t", "me:t hidden"),
        ("SELECT count(*) FROM t", "me:t"),
        ("SELECT 1 FROM t WHERE EXISTS (SELECT FROM u)", "me:t / me:u"),
        ("SELECT id FROM t ORDER BY b", "me:t id,b"),
        ("SELECT 1 FROM t WHERE a = 1 OR true", "me:t a"),
        ("SELECT a FROM t WHERE false", "me:t a"),
        ("SELECT max(a) FILTER (WHERE b > 0) FROM t", "me:t a,b"),
        // A key determines the others, and is all that is read.
        ("SELECT count(*) FROM t GROUP BY id", "me:t id"),
        ("SELECT a FROM t GROUP BY id", "me:t id,a"),
        ("SELECT rank() OVER (PARTITION BY a ORDER BY b) FROM t", "me:t a,b"),
        ("SELECT 1 FROM t JOIN u USING (id)", "me:t id / me:u id"),
        ("SELECT 1 FROM t NATURAL JOIN u", "me:t id,a,b / me:u id,a,b"),
        ("SELECT x.a FROM t x JOIN t y ON x.id = y.b", "me:t id,a / me:t b"),
        ("SELECT 1 FROM t WHERE (SELECT max(u.a) FROM u WHERE u.id = t.b) > 0", "me:t b / me:u id,a"),
        ("SELECT l.v FROM t, LATERAL (SELECT u.a AS v FROM u WHERE u.id = t.id) l", "me:t id / me:u id,a"),
        ("SELECT g FROM t, generate_series(1, t.a) g", "me:t a"),
        ("SELECT to_jsonb(t) FROM t", "me:t id,a,b"),
        // What is selected within is read, whether it is seen without or not.
        ("SELECT id FROM (SELECT id, a FROM t) q", "me:t id,a"),
        ("WITH w AS (SELECT id, a FROM t) SELECT id FROM w JOIN u USING (id)", "me:t id,a / me:u id"),
        ("SELECT a FROM t UNION SELECT b FROM t", "me:t a / me:t b"),
        ("SELECT x FROM view", "me:view x / owner:t id,b / owner:u id,a"),
        ("SELECT count(*) FROM view v", "me:view / owner:t id,b / owner:u id,a"),
        ("SELECT v.* FROM view v JOIN t ON t.id = v.y", "me:view x,y / owner:t id,b / owner:u id,a / me:t id"),
        ("SELECT q FROM view v (p, q)", "me:view y / owner:t id,b / owner:u id,a"),
    ] {
        let asked = Asked::default();
        let relations: Arc<dyn Relations> = Arc::new(Names { reader: "me", asked: Arc::clone(&asked) });
        if let Err(error) = plan(&relations, &parse_query(sql).unwrap(), &[]) {
            panic!("{sql}: {error:?}");
        }
        assert_eq!(asked.lock().unwrap().join(" / "), expected, "{sql}");
    }
}

#[test]
fn what_may_not_be_read_is_not_planned() {
    for sql in ["SELECT a FROM secret", "SELECT 1 FROM t, secret", "SELECT (SELECT max(a) FROM secret) FROM t"] {
        let relations: Arc<dyn Relations> = Arc::new(Names { reader: "me", asked: Asked::default() });
        let error = plan(&relations, &parse_query(sql).unwrap(), &[]).err().unwrap();
        assert_eq!(error.state, SqlState::INSUFFICIENT_PRIVILEGE, "{sql}");
    }
}
