//! Runs every command of docs/runbook.md, in its order.

mod common;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use common::{SOON, program};
use freshet::{
    children::{Process, SERVE, WITNESS},
    sql_client::Session,
};

const RUNBOOK: &str = include_str!("../../../docs/runbook.md");
/// All commands of the page have this long.
const LONGEST: Duration = Duration::from_secs(420);

/// Machines, each a directory, and what runs there.
struct Machines {
    place: PathBuf,
    /// What stands for an address of the page.
    addresses: BTreeMap<String, String>,
    running: BTreeMap<String, Process>,
    written: BTreeSet<i64>,
    /// The next command says by its exit status that something is wrong.
    may_fail: bool,
    deadline: Instant,
}

impl Machines {
    fn new(place: &Path) -> Self {
        let deadline = Instant::now() + LONGEST;
        let (addresses, running, written) = Default::default();
        Self { place: place.to_owned(), addresses, running, written, may_fail: false, deadline }
    }

    /// The text with addresses of this machine, one for each that the page has.
    fn here(&mut self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(at) = rest.find("10.0.0.") {
            out.push_str(&rest[..at]);
            let end = rest[at..].find(|letter: char| !letter.is_ascii_digit() && !".:".contains(letter));
            let end = end.map_or(rest.len(), |end| at + end);
            let reserve = || freshet_testing::ports::reserve().unwrap().to_string();
            out.push_str(self.addresses.entry(rest[at..end].to_owned()).or_insert_with(reserve));
            rest = &rest[end..];
        }
        out + rest
    }

    fn directory(&self, machine: &str) -> PathBuf {
        let directory = self.place.join(machine);
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    /// The configuration of the page, for this machine.
    fn configure(&mut self, machine: &str) {
        let file = self.directory(machine).join("freshet.toml");
        if !file.exists() {
            let toml = RUNBOOK.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
            let own = toml.replace("10.0.0.1", &format!("10.0.0.{}", machine.trim_start_matches('n')));
            let data = self.directory(machine).join("data");
            let own = self.here(&own).replace("\"data\"", &format!("{data:?}"));
            fs::write(file, own).unwrap();
        }
    }

    /// A node or a witness is started on a machine.
    fn start(&mut self, machine: &str, runs: &str, words: &[&str]) {
        self.configure(machine);
        let directory = self.directory(machine);
        let path = |word: &&str| match *word {
            "freshet.toml" | "data" | "token" => directory.join(word).display().to_string(),
            word => word.to_owned(),
        };
        let mut flags: Vec<String> = words.iter().map(path).collect();
        if runs == SERVE {
            let sockets = directory.display().to_string();
            flags.extend(["--sql-socket-directory", &sockets, "--log-buffer-bytes", "4194304"].map(str::to_owned));
        }
        let (process, ready) = Process::spawn_as(runs, &program(), flags).unwrap();
        if let Err(cause) = ready.recv_timeout(SOON) {
            panic!("{machine} does not start ({cause}): {}", process.messages());
        }
        self.running.insert(machine.to_owned(), process);
    }

    /// A command in a shell: on a machine, or of an operator.
    fn shell(&mut self, directory: &Path, command: &str) {
        let (program, paths) = (program(), std::env::var_os("PATH").unwrap_or_default());
        let paths = std::iter::once(program.parent().unwrap().to_owned()).chain(std::env::split_paths(&paths));
        let mut shell = Command::new("timeout");
        shell.args([
            &self.deadline.saturating_duration_since(Instant::now()).as_secs().to_string(),
            "sh",
            "-c",
            command,
        ]);
        shell.env("PATH", std::env::join_paths(paths).unwrap()).current_dir(directory).stdin(Stdio::null());
        let output = shell.output().unwrap();
        let shown = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let tail: Vec<_> = shown.lines().rev().take(30).collect();
        let logs = || self.running.iter().map(|(name, it)| format!("{name}: {}\n", it.messages())).collect::<String>();
        let may_fail = std::mem::take(&mut self.may_fail);
        assert!(output.status.success() || may_fail, "{command}\n{:?}\n{tail:#?}\n{}", output.status, logs());
    }

    /// What the page does not say aloud.
    fn directive(&mut self, words: &[&str]) {
        match words {
            ["copy", "token", machine] => {
                let to = self.directory(machine).join("token");
                fs::copy(self.place.join("token"), to).map(drop).unwrap();
            }
            ["may", "fail"] => self.may_fail = true,
            ["kill", "all"] => self.running.clear(),
            ["lose", machine] => {
                self.running.remove(*machine);
                fs::remove_dir_all(self.directory(machine)).unwrap();
            }
            ["writes", "any"] => self.writes(&self.running.keys().cloned().collect::<Vec<_>>()),
            ["writes", machine] => self.writes(&[(*machine).to_owned()]),
            other => panic!("unknown: {other:?}"),
        }
    }

    /// One of these takes a row, and has all rows of before.
    fn writes(&mut self, machines: &[String]) {
        let number = self.written.len() as i64 + 1;
        let statements = [
            "CREATE TABLE IF NOT EXISTS kept (id bigint PRIMARY KEY)".to_owned(),
            format!("INSERT INTO kept VALUES ({number})"),
        ];
        let patience = Duration::from_secs(20);
        let open = |machine: &String| {
            let sql = self.addresses.get(&format!("10.0.0.{}:5432", machine.trim_start_matches('n')))?;
            let socket = self.place.join(machine).join(format!(".s.PGSQL.{}", sql.rsplit(':').next()?));
            let mut session = Session::open(&socket, "freshet", patience).ok()?;
            statements.iter().try_for_each(|statement| session.run(statement).map(drop)).ok()?;
            Some(session.run("SELECT id FROM kept").ok()?.rows)
        };
        loop {
            if let Some(rows) = machines.iter().find_map(open) {
                let there: BTreeSet<i64> = rows.iter().map(|row| row[0].parse().unwrap()).collect();
                assert!(there.is_superset(&self.written), "{:?} of {:?}", there, self.written);
                self.written.insert(number);
                return;
            }
            assert!(Instant::now() < self.deadline, "none of {machines:?} takes a row");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn line(&mut self, line: &str) {
        if let Some(directive) = line.strip_prefix("<!-- test: ").and_then(|line| line.strip_suffix(" -->")) {
            return self.directive(&directive.split(' ').collect::<Vec<_>>());
        }
        let Some((machine, command)) = line.strip_prefix("    ").and_then(|line| line.split_once("$ ")) else { return };
        let command = self.here(command);
        match command.split(' ').collect::<Vec<_>>()[..] {
            ["freshet", SERVE, ref words @ ..] => self.start(machine, SERVE, words),
            ["freshet", WITNESS, ref words @ ..] => self.start(machine, WITNESS, words),
            _ if machine.is_empty() => self.shell(&self.place.clone(), &command),
            _ => self.shell(&self.directory(machine), &command),
        }
    }
}

#[test]
fn every_command_of_the_runbook_does_its_part() {
    let place = tempfile::tempdir().unwrap();
    let mut machines = Machines::new(place.path());
    for (number, line) in RUNBOOK.lines().enumerate() {
        println!("{}: {line}", number + 1);
        machines.line(line);
    }
    assert!(machines.written.len() >= 6, "{:?}", machines.written);
}
