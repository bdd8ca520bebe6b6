//! The scripts in `tests/sql`.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sqllogictest::{DB, DBOutput, DefaultColumnType, Runner};

use super::{Sql, SqlNode, shown};

struct Connection(Sql);

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct ScriptError(String);

impl DB for Connection {
    type Error = ScriptError;
    type ColumnType = DefaultColumnType;

    fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>, ScriptError> {
        use tokio_postgres::SimpleQueryMessage::{CommandComplete, Row, RowDescription};
        let messages =
            self.0.runtime.block_on(self.0.client.simple_query(sql)).map_err(|error| ScriptError(shown(&error)))?;
        let mut columns = None;
        let mut rows = Vec::new();
        let mut count = 0;
        for message in &messages {
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

/// Where they are.
pub fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sql")
}

/// All of them, but those for standbys.
pub fn all() -> Vec<PathBuf> {
    let directory = directory();
    let mut scripts: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    scripts.retain(|path| path.extension().is_some_and(|extension| extension == "slt"));
    scripts.sort();
    assert!(!scripts.is_empty(), "no scripts in {}", directory.display());
    scripts
}

/// Runs a script.
pub fn run(node: &SqlNode, script: &Path) {
    let mut runner = Runner::new(|| async { Ok(Connection(node.connect())) });
    if let Err(error) = runner.run_file(script) {
        panic!("{}", error.display(false));
    }
}
