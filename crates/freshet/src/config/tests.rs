use clap::Parser;
use freshet_base::Safety;

use super::{flags::Keys, *};
use crate::cli::{Cli, Command};

fn flags(args: &[&str]) -> Flags {
    let args = ["freshet", "serve"].iter().chain(args);
    match Cli::try_parse_from(args).unwrap().command {
        Command::Serve(serve) => serve.flags.0,
        _ => unreachable!("serve was parsed"),
    }
}

/// As `freshet-lab node` takes them.
fn laboratory(args: &[&str]) -> Flags {
    #[derive(Parser)]
    struct Node {
        #[command(flatten)]
        flags: Given<true>,
    }
    Node::try_parse_from(["node"].iter().chain(args)).unwrap().flags.0
}

fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("node.toml");
    fs::write(&path, text).unwrap();
    (directory, path)
}

#[test]
fn flags_beat_the_file() {
    let (_directory, path) = written("replay-threads = 7\nsafety = \"quorum:2\"\n[log]\ntransaction-bytes = 70000\n");
    let path = path.to_str().unwrap();
    let settings = Settings::gather(&flags(&["--config", path, "--replay-threads", "3"])).unwrap();
    assert_eq!(
        (settings.node.replay_threads, settings.node.log.transaction_bytes, settings.node.safety),
        (3, 70_000, Safety::Quorum(2))
    );
    assert_eq!(settings.node.refuse_after_ms, Settings::default().node.refuse_after_ms);
}

#[test]
fn the_defaults_can_be_written_and_read() {
    let settings = Settings::default();
    settings.check().unwrap();
    let node = toml::to_string(&settings.node).unwrap();
    assert_eq!(toml::from_str::<NodeConfig>(&node).unwrap(), settings.node);
    let server = toml::to_string(&settings.server).unwrap();
    assert_eq!(toml::from_str::<ServerSettings>(&server).unwrap(), settings.server);
}

#[test]
fn unknown_keys_are_named_with_their_file() {
    for (text, key) in [
        ("wokers = 7", "line 1: unknown key wokers"),
        ("[log]\nsegment = 5", "line 2: unknown key log.segment"),
        ("log = 5", "line 1"),
        ("new-cluster = true", "line 1: unknown key new-cluster"),
        ("pin = \"0\"", "line 1: unknown key pin"),
        ("sweep.interval-s = 7", "line 1: unknown key sweep"),
        ("[log]\nlevel = \"warn\"\nstreams = 7", "line 3: unknown key log.streams"),
        ("safety = \"1-safe\"\nlog.dir = []\nlog.dirs = []", "line 3: unknown key log.dirs"),
        ("[unknown]\nkey = 1", "line 1: unknown key unknown"),
        ("safety = \"3-safe\"", "3-safe"),
    ] {
        let (_directory, path) = written(text);
        let message = Settings::gather(&flags(&["--config", path.to_str().unwrap()])).unwrap_err().to_string();
        assert!(message.contains(key) && message.contains("node.toml"), "{message}");
    }
    let message = Settings::gather(&flags(&["--config", "/nowhere/node.toml"])).unwrap_err().to_string();
    assert!(message.contains("/nowhere/node.toml"), "{message}");
    let unknown = [("FRESHET_WOKERS".into(), "7".into()), ("PATH".into(), "".into())];
    let message = flags::check_environment(Keys::Laboratory, unknown.into_iter()).unwrap_err().to_string();
    assert!(message.contains("FRESHET_WOKERS"), "{message}");
    let known = [("FRESHET_SAFETY".into(), "7".into()), ("FRESHET_SEED".into(), "".into())];
    flags::check_environment(Keys::Product, known.into_iter()).unwrap();
}

/// `freshet serve` knows them no more than keys that nobody knows.
#[test]
fn the_laboratorys_keys_are_unknown_to_the_product() {
    let product = Keys::Product.defaults();
    for key in Keys::Laboratory.defaults().into_keys().filter(|key| !product.contains_key(key)) {
        let flag = format!("--{}", flags::name_of(&key));
        let refused = Cli::try_parse_from(["freshet", "serve", &flag]).unwrap_err();
        assert_eq!(refused.kind(), clap::error::ErrorKind::UnknownArgument, "{refused}");
        let variable =
            [(format!("FRESHET_{}", flags::name_of(&key).to_uppercase().replace('-', "_")).into(), "".into())];
        flags::check_environment(Keys::Product, variable.clone().into_iter()).unwrap_err();
        flags::check_environment(Keys::Laboratory, variable.into_iter()).unwrap();
    }
}

const MIRROR: [&str; 4] = ["--join", "127.0.0.1:7401", "--mirror-bytes", "1073741824"];

#[test]
fn absurd_values_are_refused_by_name() {
    for (args, setting) in [
        (&["--replay-threads", "1000"][..], "--replay-threads 1000: use a number from 1 to 64"),
        (&["--listen", "0.0.0.0:7401"], "--listen 0.0.0.0:7401: no node reaches another one there"),
        (&["--log-segment-bytes", "1000000"], "--log-segment-bytes 1000000: use a multiple of 4096"),
        (&["--log-buffer-bytes", "65537"], "--log-buffer-bytes 65537: use a power of two, like 131072"),
        (&["--log-batch-bytes", "0"], "--log-batch-bytes 0: "),
        (&["--log-persist-method", "clean"], "--log-persist-method clean: "),
        (&["--log-persist-delay-per-kib", "much"], "--log-persist-delay-per-kib much: "),
        (&["--fabric-device", "mlx5_0"], "--fabric-device mlx5_0: use NAME:PORT:GID-INDEX"),
        (&["--fabric-bandwidth-gbit", "NaN"], "--fabric-bandwidth-gbit NaN: "),
        (&["--witness-etcd", "http://a:1/x,http://b:2"], "--witness-etcd http://a:1/x,http://b:2: "),
        (&["--sql-tls-ca", "ca"], "--sql-tls-ca ca: "),
        (&["--listen", "127.0.0.1:7400"], "address = 127.0.0.1:7400: "),
        (&["--fabric-appliance", "true"], "--fabric-appliance true: set domain to pmem"),
        (&["--fabric-appliance", "--domain", "pmem", "--replay", "synchronous"], "--fabric-appliance true: "),
        (&["--mirror-bytes", "1000000000"], "--mirror-bytes 1000000000: set join"),
        (
            &["--mirror-bytes", "1000000000", "--join", "a:7401", "--bootstrap-from", "b:7401"],
            "--mirror-bytes 1000000000: leave bootstrap-from out",
        ),
        (
            &["--fabric-appliance", "true", "--domain", "pmem", "--relay-standbys", "1", "--relay-ack", "downstream"],
            "--fabric-appliance true: ",
        ),
        (&[&MIRROR[..], &["--domain", "pmem"]].concat(), "--mirror-bytes 1073741824: set mirror.keep-dir, on a DAX"),
        (
            &[&MIRROR[..], &["--domain", "pmem", "--mirror-keep-dir", "/pmem", "--fabric-kind", "verbs"]].concat(),
            "--mirror-bytes 1073741824: set fabric.kind to shm or tcp",
        ),
    ] {
        let message = Settings::gather(&laboratory(args)).unwrap_err().to_string();
        assert!(message.starts_with(setting), "{message}");
    }
    let (_directory, path) = written("[log]\nepoch-ms = 0\n");
    let path = path.to_str().unwrap();
    let message = Settings::gather(&laboratory(&["--config", path])).unwrap_err().to_string();
    let expected = format!("configuration file {path}: log.epoch-ms = 0: use a number from 1 to 60000");
    assert_eq!(message, expected);
    for args in [["--safety", "safe"], ["--listen", "here"], ["--domain", "tape"]] {
        assert!(Cli::try_parse_from(["freshet", "serve"].iter().chain(&args)).is_err(), "{args:?}");
    }
}

/// Every key with a value that is not its default, as a file writes it and as a flag or a variable
/// does. Users have those of the product in their files and scripts: lines are added here, and few
/// are changed or removed.
const KEYS: [(&str, &str, &str); 101] = [
    ("address", "\"127.0.0.1:7500\"", "127.0.0.1:7500"),
    ("open-status", "true", "true"),
    ("http-listen", "\"127.0.0.1:7\"", "127.0.0.1:7"),
    ("listen", "\"127.0.0.1:7501\"", "127.0.0.1:7501"),
    ("join", "\"primary:7401\"", "primary:7401"),
    ("advertise", "\"me:7501\"", "me:7501"),
    ("peers", "[\"a:1\", \"b:2\"]", "a:1,b:2"),
    ("safety", "\"quorum:2\"", "quorum:2"),
    ("least-in-sync", "1", "1"),
    ("asynchronous", "true", "true"),
    ("restart-timeout-s", "7", "7"),
    ("relay-standbys", "3", "3"),
    ("relay-ack", "\"downstream\"", "downstream"),
    ("standby-timeout-ms", "70", "70"),
    ("refuse-after-ms", "7", "7"),
    ("failover", "\"manual\"", "manual"),
    ("lease-ms", "70", "70"),
    ("directory", "\"data\"", "data"),
    ("memory-bytes", "3000000", "3000000"),
    ("replay-threads", "7", "7"),
    ("replay", "\"none\"", "none"),
    ("apply", "\"full\"", "full"),
    ("encoding", "\"inputs\"", "inputs"),
    ("backlog-ms", "7", "7"),
    ("on-mismatch", "\"stop\"", "stop"),
    ("on-doubt", "\"report\"", "report"),
    ("verify-sample", "7", "7"),
    ("pin", "\"0,2\"", "0,2"),
    ("fabric.kind", "\"shm\"", "shm"),
    ("fabric.spin-us", "7", "7"),
    ("fabric.huge-pages", "true", "true"),
    ("fabric.bandwidth-gbit", "7.5", "7.5"),
    ("fabric.compress", "true", "true"),
    ("fabric.appliance", "true", "true"),
    ("fabric.device", "\"mlx5_0:1:3\"", "mlx5_0:1:3"),
    ("fabric.encryption", "\"none\"", "none"),
    ("mirror.bytes", "70000000", "70000000"),
    ("mirror.undo-bytes", "70000", "70000"),
    ("mirror.directory-bytes", "70000", "70000"),
    ("mirror.keep-dir", "\"/dev/shm/mirrors\"", "/dev/shm/mirrors"),
    ("mirror.rehearse-s", "3600", "3600"),
    ("member.token-file", "\"token\"", "token"),
    ("member.certificates", "\"certificates\"", "certificates"),
    ("witness.etcd", "[\"http://x:1\", \"http://y:1\"]", "http://x:1,http://y:1"),
    ("witness.etcd-certificates", "\"etcd\"", "etcd"),
    ("witness.etcd-user-file", "\"user\"", "user"),
    ("domain", "\"pmem\"", "pmem"),
    ("certifier", "\"ssn\"", "ssn"),
    ("record-events", "\"events\"", "events"),
    ("record-inputs", "true", "true"),
    ("log.buffer-bytes", "131072", "131072"),
    ("log.uncommitted-bytes", "70000", "70000"),
    ("log.transaction-bytes", "70000", "70000"),
    ("log.segment-bytes", "131072", "131072"),
    ("log.batch-bytes", "7", "7"),
    ("log.interval-us", "7", "7"),
    ("log.partition-bytes", "2048", "2048"),
    ("log.streams", "7", "7"),
    ("log.dir", "[\"x\", \"y\"]", "x,y"),
    ("log.group-size", "7", "7"),
    ("log.divide-by", "\"page\"", "page"),
    ("log.huge-pages", "true", "true"),
    ("log.page-records", "7", "7"),
    ("log.group-commit", "\"epoch\"", "epoch"),
    ("log.epoch-ms", "7", "7"),
    ("log.format", "\"json\"", "json"),
    ("log.level", "\"warn,log=debug\"", "warn,log=debug"),
    ("log.buffer-file", "\"dax\"", "dax"),
    ("log.persist-method", "\"eadr\"", "eadr"),
    ("log.persist-delay-ns", "7", "7"),
    ("log.persist-delay-per-kib", "\"calibrated\"", "calibrated"),
    ("log.persist-upon-replay", "false", "false"),
    ("log.force-fence", "\"signal\"", "signal"),
    ("checkpoint.dir", "[\"x\", \"y\"]", "x,y"),
    ("checkpoint.files", "7", "7"),
    ("checkpoint.interval-s", "7", "7"),
    ("checkpoint.log-bytes", "7", "7"),
    ("checkpoint.sync-bytes", "7", "7"),
    ("checkpoint.cpu-percent", "7", "7"),
    ("checkpoint.keep-log-bytes", "7", "7"),
    ("state-proof.bytes", "70000", "70000"),
    ("state-proof.interval-ms", "70", "70"),
    ("sweep.interval-s", "7", "7"),
    ("sweep.cpu-percent", "7", "7"),
    ("sql.listen", "\"off\"", "off"),
    ("sql.socket-directory", "\"sockets\"", "sockets"),
    ("sql.access", "\"hba\"", "hba"),
    ("sql.connections", "7", "7"),
    ("sql.role-connections", "7", "7"),
    ("sql.user", "\"me\"", "me"),
    ("sql.tls-certificates", "\"sql.crt\"", "sql.crt"),
    ("sql.tls-key", "\"sql.key\"", "sql.key"),
    ("sql.tls-ca", "\"ca.crt\"", "ca.crt"),
    ("sql.memory-bytes", "3000000", "3000000"),
    ("sql.session-memory-bytes", "2000000", "2000000"),
    ("sql.statement-memory-bytes", "1048577", "1048577"),
    ("sql.statement-timeout-ms", "7", "7"),
    ("sql.idle-in-transaction-timeout-ms", "7", "7"),
    ("sql.snapshot-max-age-ms", "7", "7"),
    ("sql.snapshot-max-bytes", "3000000", "3000000"),
    ("sql.idle-session-timeout-ms", "7", "7"),
];

/// A key as a flag, without the dashes in front.
fn flag_of(key: &str) -> String {
    flags::name_of(key)
}

#[test]
fn every_key_is_read_from_files_flags_and_variables() {
    // Such a node may be no relay that acknowledges for others, nor any relay.
    let given = |key: &str| !["fabric.appliance", "mirror.bytes"].contains(&key);
    let lines = KEYS.iter().filter(|(key, ..)| given(key)).map(|(key, value, _)| format!("{key} = {value}\n"));
    let (_directory, path) = written(&lines.collect::<String>());
    let from_file = Settings::gather(&laboratory(&["--config", path.to_str().unwrap()])).unwrap();
    let arguments: Vec<String> = KEYS
        .iter()
        .filter(|(key, ..)| given(key))
        .flat_map(|(key, _, value)| [format!("--{}", flag_of(key)), (*value).to_owned()])
        .collect();
    let from_flags = Settings::gather(&laboratory(&arguments.iter().map(String::as_str).collect::<Vec<_>>())).unwrap();
    assert_eq!(from_file, from_flags);

    let (values, defaults) = (from_file.keys(), Settings::default().keys());
    assert_eq!(values.len(), KEYS.len(), "every key is in the list");
    for (key, ..) in KEYS {
        assert_eq!(values[key] != defaults[key], given(key), "{key} is {}", values[key]);
        let variable = format!("FRESHET_{}", flag_of(key).to_uppercase().replace('-', "_"));
        flags::check_environment(Keys::Laboratory, [(variable.into(), "".into())].into_iter()).unwrap();
    }
}

/// Both ways of writing what is true or false, and of writing lists.
#[test]
fn flags_may_leave_out_true_and_repeat_lists() {
    for key in ["open-status", "asynchronous", "record-inputs", "fabric.compress"] {
        let settings = Settings::gather(&flags(&[&format!("--{}", flag_of(key))])).unwrap();
        assert_eq!(settings.keys()[key], serde_json::Value::Bool(true), "{key}");
    }
    let repeated = Settings::gather(&flags(&["--log-dir", "a", "--log-dir", "b", "--peers", "c:1"])).unwrap();
    assert_eq!(repeated, Settings::gather(&flags(&["--log-dir", "a,b", "--peers", "c:1"])).unwrap());
    let (_directory, path) = written("peers = [\"a:1\", \"b:2\"]\n");
    let replaced = Settings::gather(&flags(&["--config", path.to_str().unwrap(), "--peers", "c:1"])).unwrap();
    assert_eq!(replaced.keys()["peers"], serde_json::json!(["c:1"]), "not added to the file's");
}
