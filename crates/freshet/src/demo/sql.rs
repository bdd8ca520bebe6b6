//! A session of psql with the cluster: what a user sees of it.

use std::{
    io::ErrorKind,
    path::Path,
    process::{Command, Stdio},
};

use super::{Teller, cluster::Cluster};
use crate::Failure;

/// The statements before the primary dies, which it executes.
const BEFORE: &[&str] = &[
    "CREATE TABLE purse (id serial PRIMARY KEY, owner text NOT NULL, balance numeric(12, 2) CHECK (balance >= 0))",
    "INSERT INTO purse (owner, balance) VALUES ('ann', 100), ('bob', 20), ('cid', 5) RETURNING id, owner",
    "BEGIN; UPDATE purse SET balance = balance - 30 WHERE id = 1; UPDATE purse SET balance = balance + 30 WHERE id = 2; COMMIT",
    "UPDATE purse SET balance = balance - 1000 WHERE owner = 'cid'",
];

/// What a standby is asked then.
const ON_STANDBY: &[&str] = &[
    "SELECT owner, balance, rank() OVER (ORDER BY balance DESC), sum(balance) OVER () AS of FROM purse ORDER BY owner",
    "DELETE FROM purse",
];

/// What the new primary is asked.
const AFTER: &[&str] = &[
    "UPDATE purse SET balance = balance + 1 WHERE id IN (SELECT id FROM purse ORDER BY balance LIMIT 1) RETURNING owner, balance",
    "\\d purse",
];

/// psql, if it is installed.
pub(crate) struct Psql(());

/// psql's arguments for a Unix socket: its directory and its port.
fn place(socket: &Path) -> Option<(&str, &str)> {
    let port = socket.extension()?.to_str()?;
    Some((socket.parent()?.to_str()?, port))
}

impl Psql {
    /// Looks for psql on the PATH.
    pub(crate) fn find(teller: &Teller) -> Result<Option<Self>, Failure> {
        let asked = Command::new("psql").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        match asked {
            Ok(status) if status.success() => Ok(Some(Self(()))),
            Err(cause) if cause.kind() != ErrorKind::NotFound => {
                Err(Failure::new(format!("psql cannot be started: {cause}")))
            }
            _ => {
                teller.print(
                    "psql is not installed (package postgresql-client): the demo continues without an SQL session",
                );
                Ok(None)
            }
        }
    }

    /// Works on the primary, and reads what it has done on a standby.
    pub(crate) fn before(&self, cluster: &Cluster, teller: &Teller) -> Result<(), Failure> {
        self.run(cluster, cluster.primary(), "the primary", BEFORE, teller)?;
        for standby in cluster.standbys().into_iter().take(1) {
            self.run(cluster, standby, "a standby", ON_STANDBY, teller)?;
        }
        Ok(())
    }

    /// Continues at the new primary.
    pub(crate) fn after(&self, cluster: &Cluster, teller: &Teller) -> Result<(), Failure> {
        self.run(cluster, cluster.primary(), "the new primary", AFTER, teller)
    }

    fn run(&self, cluster: &Cluster, node: usize, what: &str, sql: &[&str], teller: &Teller) -> Result<(), Failure> {
        let Some((host, port)) = place(cluster.sql_socket(node)?) else {
            return Err(Failure::new(format!("node {} has a strange socket", cluster.name(node))));
        };
        teller.print(format!("psql -h {host} -p {port} -U freshet  ({what}, {})", cluster.name(node)));
        for statement in sql {
            let end = if statement.starts_with('\\') { "" } else { ";" };
            println!("    freshet=# {statement}{end}");
            let output = Command::new("psql")
                .args(["-X", "-h", host, "-p", port, "-U", "freshet", "-d", "freshet", "-c", statement])
                .env("PGCONNECT_TIMEOUT", "10")
                .env("PGOPTIONS", "-c statement_timeout=10s")
                .stdin(Stdio::null())
                .output()?;
            let printed = [output.stdout, output.stderr].concat();
            for line in String::from_utf8_lossy(&printed).lines().filter(|line| !line.is_empty()) {
                println!("    {line}");
            }
        }
        Ok(())
    }
}
