//! A PostgreSQL 15 that a test starts to compare Freshet with.

use std::{
    env, fs,
    os::unix::fs::{MetadataExt, chown},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use tokio_postgres::Config;

use super::{Sql, eventually};

/// A PostgreSQL of the test's own, in a directory of its own, at a Unix socket there. It has the
/// superuser and the database `freshet`, UTF-8, and the collation C.
pub struct Judge {
    process: Child,
    directory: tempfile::TempDir,
}

/// The directory of PostgreSQL 15's programs.
pub fn programs() -> Option<PathBuf> {
    let installed = PathBuf::from("/usr/lib/postgresql/15/bin");
    let path = env::var_os("PATH").unwrap_or_default();
    let mut places = std::iter::once(installed).chain(env::split_paths(&path));
    places.find(|place| {
        let version = Command::new(place.join("postgres")).arg("--version").output();
        let known = version.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).contains("(PostgreSQL) 15."));
        known && place.join("initdb").exists()
    })
}

impl Judge {
    /// Starts one, and waits until it takes clients. Says why it cannot.
    ///
    /// # Panics
    /// When it does not start though it is installed.
    pub fn start() -> Result<Self, &'static str> {
        let programs = programs().ok_or("PostgreSQL 15 is not installed (package postgresql-15)")?;
        let directory = tempfile::tempdir().unwrap();
        // It does not run as root.
        let as_root = fs::metadata(directory.path()).unwrap().uid() == 0;
        if as_root {
            let passwd = fs::read_to_string("/etc/passwd").unwrap();
            let entry = passwd.lines().find_map(|line| line.strip_prefix("postgres:"));
            let mut fields = entry.ok_or("there is no user postgres")?.split(':').skip(1);
            let (uid, gid) = (fields.next().unwrap(), fields.next().unwrap());
            chown(directory.path(), Some(uid.parse().unwrap()), Some(gid.parse().unwrap())).unwrap();
        }
        let command = |program: &str| {
            let program = programs.join(program);
            let mut command = if as_root { Command::new("setpriv") } else { Command::new(&program) };
            if as_root {
                command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]).arg(&program);
            }
            command.current_dir(directory.path()).stdin(Stdio::null());
            command
        };
        let data = directory.path().join("data");
        let made = command("initdb")
            .args([
                "-U",
                "freshet",
                "--auth=trust",
                "--no-sync",
                "--locale=C",
                "--lc-ctype=C.UTF-8",
                "-E",
                "UTF8",
                "-D",
            ])
            .arg(&data)
            .output()
            .map_err(|_| "setpriv is not installed (package util-linux)")?;
        assert!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        let log = fs::File::create(directory.path().join("log")).unwrap();
        let process = command("postgres")
            .args(["-F", "-c", "listen_addresses=", "-c", "max_connections=8", "-c", "shared_buffers=16MB"])
            .arg("-k")
            .arg(directory.path())
            .arg("-D")
            .arg(&data)
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut judge = Self { process, directory };
        judge.wait_until_ready();
        Ok(judge)
    }

    /// Waits for it, and makes the database.
    fn wait_until_ready(&mut self) {
        let mut config = self.config();
        config.dbname("postgres");
        let log = self.directory.path().join("log");
        eventually("PostgreSQL lets a client in", || {
            if let Some(status) = self.process.try_wait().unwrap() {
                panic!("postgres: {status}: {}", fs::read_to_string(&log).unwrap());
            }
            let Ok(session) = Sql::open(&config) else { return false };
            session.query("CREATE DATABASE freshet").unwrap();
            true
        });
    }

    /// The Unix socket that it listens at.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join(".s.PGSQL.5432")
    }

    /// How the superuser gets to the database.
    pub fn config(&self) -> Config {
        let mut config = Config::new();
        config.host_path(self.directory.path()).user("freshet").dbname("freshet");
        config
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        // A fast shutdown; it has the test's sessions only.
        let asked = Command::new("kill").args(["-INT", &self.process.id().to_string()]).status();
        if !asked.is_ok_and(|status| status.success()) {
            let _ = self.process.kill();
        }
        let _ = self.process.wait();
    }
}
