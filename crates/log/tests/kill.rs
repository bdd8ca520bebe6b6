//! kill -9 of a process that writes to a log: everything it acknowledged is there afterwards.

use std::{
    env,
    io::{BufRead, BufReader, Write, stdout},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use freshet_base::{ClusterId, Fid, Lsn, NodeId, Rid, Term};
use freshet_log::{BlockBuilder, BlockKind, Control, Log, LogConfig, LogDirectory, RecordKind, control};

const DIRECTORY: &str = "FRESHET_TEST_LOG_DIRECTORY";

fn restart(directory: &LogDirectory) -> (Log, Lsn) {
    let store = directory.open_store(&[]).unwrap();
    let tail = store.settle().unwrap();
    let config = LogConfig { capacity: 64 << 10, partition: 4 << 10, batch_bytes: 8 << 10, ..LogConfig::default() };
    (Log::open(config, Some(store), tail.end, Term(1)).unwrap(), tail.end)
}

/// The child: writes for ever and prints what is durable.
fn write_until_killed(path: &Path) -> ! {
    let directory = LogDirectory::open(path).unwrap();
    let (log, _) = restart(&directory);
    thread::scope(|scope| {
        for worker in 0..2u64 {
            let log = &log;
            scope.spawn(move || {
                let (mut writer, mut builder) = (log.writer().unwrap(), BlockBuilder::new());
                for i in 0u64.. {
                    builder.begin();
                    let row = vec![worker as u8; (i * 37 % 900) as usize];
                    builder.push(None, Fid(1), Rid(i), RecordKind::Insert, &row).unwrap();
                    let length = builder.seal_records();
                    writer.throttle().unwrap();
                    let reservation = writer.reserve(length).unwrap();
                    let (lsn, end) = (reservation.lsn(), reservation.end());
                    reservation.fill(builder.finish(lsn, Term(1), BlockKind::Redo)).unwrap();
                    if i % 7 == 0 {
                        log.wait_durable(end, None).unwrap();
                        // One write, so lines of two threads do not mix.
                        stdout().lock().write_all(format!("durable {end}\n").as_bytes()).unwrap();
                    }
                }
            });
        }
    });
    unreachable!()
}

#[test]
fn what_a_killed_process_acknowledged_is_there() {
    if let Some(path) = env::var_os(DIRECTORY) {
        write_until_killed(Path::new(&path));
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let (terms, latest_term) = (vec![(Term(1), Lsn(0), NodeId(1), 1)], (Term(1), Some(NodeId(1))));
    let control = Control { terms, latest_term, ..Control::new(ClusterId(5), NodeId(1), 64 << 10, 1) };
    drop(LogDirectory::create(&path, control).unwrap());
    let rounds = env::var("FRESHET_KILLS").map_or(6, |rounds| rounds.parse().unwrap());
    let mut acknowledged = Lsn(0);
    for round in 0..rounds {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "what_a_killed_process_acknowledged_is_there", "--nocapture"])
            .env(DIRECTORY, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut take = |line: String| {
            // The test harness prints without a line end before the first line.
            if let Some(at) = line.find("durable ")
                && let Ok(lsn) = line[at + 8..].parse()
            {
                acknowledged = acknowledged.max(Lsn(lsn));
            }
        };
        lines.by_ref().take(20 + round * 10).for_each(&mut take);
        child.kill().unwrap();
        child.wait().unwrap();
        // What it printed before it died counts too, except a line that was cut in the middle.
        let rest: Vec<String> = lines.collect();
        rest.iter().take(rest.len().saturating_sub(1)).cloned().for_each(&mut take);
        assert!(acknowledged > Lsn(0));
        assert_eq!(control::read_control(&path).unwrap().term(), Term(1));
        let (log, end) = restart(&LogDirectory::open(&path).unwrap());
        assert!(end >= acknowledged, "round {round}: the log ends at {end}, {acknowledged} was acknowledged");
        log.close().unwrap();
    }
}
