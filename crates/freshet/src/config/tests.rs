use clap::{CommandFactory, Parser};

use super::*;
use crate::cli::{Cli, Command};

fn flags(args: &[&str]) -> Flags {
    let args = ["freshet", "serve"].iter().chain(args);
    match Cli::try_parse_from(args).unwrap().command {
        Command::Serve(serve) => serve.flags,
        _ => unreachable!("serve was parsed"),
    }
}

fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("node.toml");
    fs::write(&path, text).unwrap();
    (directory, path)
}

/// The documentation of every flag names its default, which is the true one.
#[test]
fn help_names_the_defaults() {
    let defaults = toml::Table::try_from(Settings::default()).unwrap();
    let tables =
        ["log", "checkpoint", "fabric", "member", "sql"].map(|name| (name, defaults[name].as_table().unwrap()));
    let command = Cli::command();
    let serve = command.find_subcommand("serve").unwrap();
    let mut keys = 0;
    for arg in serve.get_arguments() {
        let key = arg.get_long().unwrap_or_default();
        if ["config", "help", "while-stdin"].contains(&key) {
            continue;
        }
        let within = |(name, table): &(&str, &'_ toml::Table)| {
            Some(table.get(key.strip_prefix(name)?.strip_prefix('-')?).cloned())
        };
        let value = tables.iter().find_map(within).unwrap_or_else(|| defaults.get(key).cloned());
        let shown = match value {
            Some(toml::Value::String(text)) => text.clone(),
            Some(toml::Value::Array(_)) => "none".to_owned(),
            Some(value) => value.to_string(),
            None if key == "advertise" => "as listen".to_owned(),
            None if key == "log-buffer-file" => "buffer in directory".to_owned(),
            None if key == "sql-socket-directory" => "freshet in $XDG_RUNTIME_DIR, or /tmp/freshet-<uid>".to_owned(),
            None if key == "sql-tls-certificates" => "none, no TLS".to_owned(),
            None if ["sql-tls-key", "sql-tls-ca", "sql-access"].contains(&key) => "none".to_owned(),
            None if key == "join" => "none, a primary".to_owned(),
            None if key == "member-token-file" => "none".to_owned(),
            None if key.starts_with("member-") => "made by Freshet".to_owned(),
            None => "all".to_owned(),
        };
        let help = arg.get_help().unwrap().to_string().replace('\n', " ");
        assert!(help.contains(&format!("[default: {shown}]")), "--{key}: {shown} is not in: {help}");
        assert_eq!(arg.get_env().unwrap(), format!("FRESHET_{}", key.to_uppercase().replace('-', "_")).as_str());
        keys += 1;
    }
    assert_eq!(keys, 79, "every key has a flag");
}

#[test]
fn flags_beat_the_file() {
    let (_directory, path) =
        written("replay-threads = 7\nsafety = \"quorum:2\"\nstandbys = 2\n[log]\ninterval-us = 5\n");
    let path = path.to_str().unwrap();
    let settings = Settings::gather(&flags(&["--config", path, "--replay-threads", "3"])).unwrap();
    assert_eq!((settings.replay_threads, settings.log.interval_us, settings.safety), (3, 5, Safety::Quorum(2)));
    assert_eq!(settings.refuse_after_ms, Settings::default().refuse_after_ms);
}

#[test]
fn the_defaults_can_be_written_and_read() {
    let settings = Settings::default();
    settings.check().unwrap();
    assert_eq!(toml::from_str::<Settings>(&toml::to_string(&settings).unwrap()).unwrap(), settings);
}

#[test]
fn unknown_keys_are_named_with_their_file() {
    for (text, key) in [("wokers = 7", "wokers"), ("[log]\nsegment = 5", "segment"), ("safety = \"3-safe\"", "3-safe")]
    {
        let (_directory, path) = written(text);
        let message = Settings::gather(&flags(&["--config", path.to_str().unwrap()])).unwrap_err().to_string();
        assert!(message.contains(key) && message.contains("node.toml"), "{message}");
    }
    let message = Settings::gather(&flags(&["--config", "/nowhere/node.toml"])).unwrap_err().to_string();
    assert!(message.contains("/nowhere/node.toml"), "{message}");
    let unknown = [("FRESHET_WOKERS".into(), "7".into()), ("PATH".into(), "".into())];
    let message = flags::check_environment(unknown.into_iter()).unwrap_err().to_string();
    assert!(message.contains("FRESHET_WOKERS"), "{message}");
    let known = [("FRESHET_STANDBYS".into(), "7".into()), ("FRESHET_SEED".into(), "".into())];
    flags::check_environment(known.into_iter()).unwrap();
}

#[test]
fn absurd_values_are_refused_by_name() {
    for (args, key) in [
        (&["--replay-threads", "1000"][..], "replay-threads"),
        (&["--safety", "quorum:3", "--standbys", "1"], "safety"),
        (&["--log-segment-bytes", "1000000"], "log.segment-bytes"),
        (&["--log-buffer-bytes", "3"], "log.buffer-bytes"),
        (&["--log-batch-bytes", "0"], "log.batch-bytes"),
        (&["--listen", "127.0.0.1:7400"], "address"),
        (&["--fabric-appliance", "true"], "fabric.appliance"),
        (&["--fabric-appliance", "true", "--domain", "pmem", "--replay", "synchronous"], "fabric.appliance"),
        (
            &["--fabric-appliance", "true", "--domain", "pmem", "--relay-standbys", "1", "--relay-ack", "downstream"],
            "fabric.appliance",
        ),
    ] {
        let message = Settings::gather(&flags(args)).unwrap_err().to_string();
        assert!(message.starts_with(key), "{message}");
    }
    for args in [["--standbys", "-1"], ["--safety", "safe"], ["--listen", "here"], ["--pin", "x"], ["--domain", "tape"]]
    {
        assert!(Cli::try_parse_from(["freshet", "serve"].iter().chain(&args)).is_err(), "{args:?}");
    }
}
