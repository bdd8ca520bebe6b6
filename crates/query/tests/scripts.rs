//! The scripts in `tests/sql`, a file for each feature, each against a primary; what is in
//! `standby` there then against its standby.

mod common;

use std::{fs, path::Path, time::Instant};

use common::{SOON, Sql, SqlNode, config, shown};
use freshet_engine::NodeConfig;
use sqllogictest::{DB, DBOutput, DefaultColumnType, Runner};

struct Connection(Sql);

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Said(String);

impl DB for Connection {
    type Error = Said;
    type ColumnType = DefaultColumnType;

    fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, Said> {
        use tokio_postgres::SimpleQueryMessage::{CommandComplete, Row, RowDescription};
        let said = self.0.runtime.block_on(self.0.client.simple_query(sql)).map_err(|error| Said(shown(&error)))?;
        let mut columns = None;
        let mut rows = Vec::new();
        let mut count = 0;
        for message in &said {
            match message {
                RowDescription(description) => columns = Some(description.len()),
                Row(row) => {
                    let value = |n| match row.get(n) {
                        None => "NULL".to_owned(),
                        Some("") => "(empty)".to_owned(),
                        Some(value) => value.to_owned(),
                    };
                    rows.push((0..row.len()).map(value).collect());
                }
                CommandComplete(done) => count = *done,
                _ => {}
            }
        }
        Ok(match columns {
            Some(columns) => DBOutput::Rows { types: vec![DefaultColumnType::Any; columns], rows },
            None => DBOutput::StatementComplete(count),
        })
    }

    fn engine_name(&self) -> &str {
        "freshet"
    }
}

fn run(node: &SqlNode, script: &Path) {
    let mut runner = Runner::new(|| async { Ok(Connection(node.connect())) });
    if let Err(error) = runner.run_file(script) {
        panic!("{}", error.display(false));
    }
}

#[test]
fn all_scripts_hold_on_primary_and_standby() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sql");
    let mut scripts: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.retain(|path| path.extension().is_some_and(|extension| extension == "slt"));
    scripts.sort();
    assert!(!scripts.is_empty(), "no scripts in {}", directory.display());
    for script in scripts {
        println!("{}", script.display());
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let primary = SqlNode::start(NodeConfig { standbys: 1, ..config(Some(home.path())) });
        run(&primary, &script);
        let after = directory.join("standby").join(script.file_name().unwrap());
        if after.exists() {
            let join = Some(primary.node.address().to_owned());
            let standby = SqlNode::start(NodeConfig { join, ..config(Some(other.path())) });
            let end = primary.node.database().core().snapshots.current();
            standby.node.wait_visible(end, Some(Instant::now() + SOON)).unwrap();
            run(&standby, &after);
        }
    }
}
