use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    sync::mpsc,
};

use serde_json::Value;
use tracing::{error, info, subscriber::with_default, warn};

use super::{limit::BURST, limit::INTERVAL, *};

/// What was written while `work` was done, with limits by a clock that `work` moves.
fn written(format: Format, levels: &str, work: impl FnOnce(&Messages, &dyn Fn(Duration))) -> Vec<String> {
    let clock = Arc::new(Mutex::new(Instant::now()));
    let reading = Arc::clone(&clock);
    let now = Box::new(move || *reading.lock().unwrap());
    let messages = Messages::new(format, levels.parse().unwrap(), now);
    with_default(messages.clone(), || work(&messages, &|time| *clock.lock().unwrap() += time));
    messages.report_suppressed();
    messages.0.queue.take(Some(Duration::ZERO)).0.into_iter().collect()
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|cause| panic!("{line}: {cause}"))
}

#[test]
fn a_line_has_a_sentence_and_fields() {
    let write = |_: &Messages, _: &dyn Fn(Duration)| {
        info!(standby = %"0a0b", term = 3, share = 0.5, full = true, cause = "it said \"no\"", "a standby is {}", "lost");
        let none: Option<u32> = None;
        warn!(node = none, "short");
    };
    let lines = written(Format::Text, "info", write);
    let (time, rest) = lines[0].split_once(' ').unwrap();
    assert!(humantime::parse_rfc3339(time).is_ok(), "{time}");
    let expected =
        "INFO  freshet: a standby is lost standby=0a0b term=3 share=0.5 full=true cause=\"it said \\\"no\\\"\"\n";
    assert_eq!(rest, expected);
    assert!(lines[1].ends_with(" WARN  freshet: short\n"), "{}", lines[1]);
    let lines = written(Format::Json, "info", write);
    let line = json(&lines[0]);
    assert!(humantime::parse_rfc3339(line["time"].as_str().unwrap()).is_ok());
    assert_eq!((&line["level"], &line["part"]), (&"info".into(), &"freshet".into()));
    assert_eq!((&line["message"], &line["standby"]), (&"a standby is lost".into(), &"0a0b".into()));
    assert_eq!((&line["term"], &line["full"], &line["cause"]), (&3.into(), &true.into(), &"it said \"no\"".into()));
}

/// Text that a client has chosen cannot begin a line or control a terminal.
#[test]
fn a_line_is_one_line() {
    let evil = "x\n2027-01-01T00:00:00Z ERROR log: forged\r\u{1b}[2J\u{85}";
    for format in [Format::Text, Format::Json] {
        let lines = written(format, "info", |_, _| info!(role = evil, "login of {evil} failed"));
        assert_eq!(lines.len(), 1);
        let line = lines[0].strip_suffix('\n').unwrap();
        assert!(!line.contains(|char: char| char.is_ascii_control()), "{line:?}");
    }
}

/// The steps of commits are lines if they are asked for, when they end, and nothing else is.
#[test]
fn steps_are_shown_when_asked_for() {
    fn outer() {
        freshet_base::step!(Persist, freshet_base::Lsn(64), freshet_base::Lsn(128));
        inner();
    }
    fn inner() {
        freshet_base::step!(Ship);
        let _other = tracing::error_span!("another").entered();
    }
    let write = |_: &Messages, _: &dyn Fn(Duration)| outer();
    assert_eq!(written(Format::Json, "trace,stage=debug", write), [""; 0]);
    let lines = written(Format::Json, "warn,stage=trace", write);
    let lines: Vec<_> = lines.iter().map(|line| json(line)).collect();
    let steps: Vec<_> = lines.iter().map(|line| (line["message"].as_str(), line["function"].as_str())).collect();
    assert_eq!(steps, [(Some("ship"), Some("inner")), (Some("persist"), Some("outer"))]);
    assert_eq!((&lines[1]["from"], &lines[1]["to"]), (&64.into(), &128.into()));
    assert!(lines[0]["us"].as_u64() <= lines[1]["us"].as_u64());
}

#[test]
fn levels_are_by_part() {
    let write = |_: &Messages, _: &dyn Fn(Duration)| {
        for_part();
        info!("general");
        tracing::debug!(target: "freshet_replication::feed", "special");
        info!(target: "freshet_log", "general too");
    };
    fn for_part() {
        tracing::trace!(target: "freshet_replication", "too much");
    }
    let lines = written(Format::Json, "warn,replication=debug,log=info", write);
    let sentences: Vec<_> = lines.iter().map(|line| json(line)["message"].as_str().unwrap().to_owned()).collect();
    assert_eq!(sentences, ["special", "general too"]);
    for (text, again) in [("info", "info"), ("debug, log=error", "debug,log=error"), ("log=trace", "info,log=trace")] {
        assert_eq!(text.parse::<Levels>().unwrap().to_string(), again);
    }
    for bad in ["", "loud", "info,warn", "logs=info", "log=", "log=info,log=warn", "info;log=warn"] {
        assert!(bad.parse::<Levels>().is_err(), "{bad}");
    }
}

#[test]
fn levels_and_format_change_at_once() {
    let lines = written(Format::Text, "warn", |messages, _| {
        for change in [None, Some((Format::Json, "info")), Some((Format::Text, "error"))] {
            if let Some((format, levels)) = change {
                messages.set(format, &levels.parse().unwrap());
            }
            info!("said");
        }
    });
    assert_eq!(lines.len(), 1);
    assert_eq!(json(&lines[0])["message"], "said");
}

#[test]
fn what_is_written_often_is_counted() {
    let flood = |count| (0..count).for_each(|number| error!(number, "failed"));
    let lines = written(Format::Json, "info", |messages, wait| {
        flood(BURST + 30);
        // Lines of other places are not left out.
        info!("something else");
        wait(INTERVAL);
        flood(1);
        wait(INTERVAL);
        flood(BURST + 7);
        assert!(messages.next_suppressed().is_some());
        wait(INTERVAL / 2);
        messages.report_suppressed();
        wait(INTERVAL / 2);
        messages.report_suppressed();
        // At the end no time has to pass for the report.
        flood(BURST);
        flood(3);
        messages.flush(Duration::ZERO);
    });
    let burst = BURST as usize;
    let lines: Vec<_> = lines.iter().map(|line| json(line)).collect();
    let messages: Vec<_> = lines.iter().map(|line| line["message"].as_str().unwrap()).collect();
    let left_out = "lines like one before were left out";
    let mut expected = vec!["failed"; burst];
    expected.extend(["something else", left_out, "failed"]);
    expected.extend(vec!["failed"; burst]);
    expected.push(left_out);
    // The interval began when the last one was over.
    expected.extend(vec!["failed"; burst]);
    expected.push(left_out);
    assert_eq!(messages, expected);
    assert_eq!(lines[burst + 1]["lines"], 30);
    assert_eq!(lines[2 * burst + 3]["lines"], 7);
    assert_eq!(lines[3 * burst + 4]["lines"], 3);
    assert!(lines[burst + 1]["place"].as_str().unwrap().contains("tests.rs:"));
}

/// When the reader does not read, the threads that say something do not wait, and lost lines are
/// counted.
#[test]
fn nobody_waits_for_the_reader() {
    let (out, reader) = UnixStream::pair().unwrap();
    let messages = Messages::new(Format::Json, "info".parse().unwrap(), Box::new(Instant::now));
    messages.write_to(out).unwrap();
    let long = "x".repeat(10_000);
    let count = 2_000;
    // More than the queue, what the thread has in hand, and the socket take together.
    assert!(count * long.len() > 4 * queue::CAPACITY);
    for number in 0..count {
        messages.0.queue.push(format!("{{\"message\":\"{long}\",\"number\":{number}}}\n"));
    }
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(reader).lines() {
            let line = json(&line.unwrap());
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    let (mut written, mut dropped, mut last) = (0, 0, 0);
    while written + dropped < count as u64 {
        let line = receiver.recv_timeout(Duration::from_secs(60)).expect("all are written, or counted");
        match line["number"].as_u64() {
            Some(number) => (written, last) = (written + 1, number),
            None => {
                assert!(line["message"].as_str().unwrap().contains("dropped"), "{line}");
                dropped += line["lines"].as_u64().unwrap();
            }
        }
    }
    assert!(dropped > 0 && written > 0 && last > 0);
}

/// Another process may have made a shared standard error non-blocking.
#[test]
fn what_cannot_be_written_at_once_is_written_later() {
    let (mut out, mut reader) = UnixStream::pair().unwrap();
    out.set_nonblocking(true).unwrap();
    let bytes: Vec<u8> = (0..4_000_000_u32).map(|at| at as u8).collect();
    let expected = bytes.clone();
    let writer = thread::spawn(move || queue::write(&mut out, &bytes));
    let mut found = Vec::new();
    reader.read_to_end(&mut found).unwrap();
    writer.join().unwrap();
    assert!(found == expected);
    // Lines that cannot be written are given up.
    let mut full = File::options().write(true).open("/dev/full").unwrap();
    queue::write(&mut full, b"lost");
    full.flush().unwrap();
}
