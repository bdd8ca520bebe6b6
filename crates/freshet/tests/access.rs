//! Which clients get in to a node process: by the Unix socket, by TCP, by certificates, as the
//! access file says.

mod common;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Output, Stdio},
};

use common::{SOON, refused, start};
use freshet::children::NodeProcess;
use freshet_testing::{Missing, skip};

/// psql with this connection string, as far as it is installed.
fn psql(target: &str, password: Option<&str>, sql: &str) -> Option<Output> {
    let mut command = Command::new("psql");
    command.args(["-X", "-A", "-t", "-w", "-d", target, "-c", sql]).stdin(Stdio::null());
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("PG")) {
        command.env_remove(name);
    }
    // No certificate of the user who runs the tests.
    command.env("HOME", "/nonexistent");
    if let Some(password) = password {
        command.env("PGPASSWORD", password);
    }
    match command.output() {
        Ok(output) => Some(output),
        Err(cause) => {
            skip(Missing::Tool, "psql", &cause.to_string());
            None
        }
    }
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

fn port(node: &NodeProcess) -> &str {
    node.ready().sql.as_deref().unwrap().rsplit_once(':').unwrap().1
}

/// How psql reaches a node by its Unix socket, and by TCP.
fn targets(node: &NodeProcess, sockets: &Path, user: &str) -> (String, String) {
    let port = port(node);
    let more = format!("port={port} user={user} dbname=freshet connect_timeout=30");
    (format!("host={} {more}", sockets.display()), format!("host=127.0.0.1 {more} sslmode=prefer"))
}

#[test]
fn the_servers_user_comes_in_by_the_unix_socket_and_others_by_passwords() {
    let (data, sockets) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let flags = ["--sql-listen", "127.0.0.1:0", "--sql-socket-directory", sockets.path().to_str().unwrap()];
    let mut node = start(data.path(), &flags);
    let socket = node.ready().sql_socket.clone().unwrap();
    assert_eq!(socket, sockets.path().join(format!(".s.PGSQL.{}", port(&node))));
    let (local, tcp) = targets(&node, sockets.path(), "freshet");
    let Some(output) = psql(&tcp, Some(""), "SELECT 1") else { return };
    assert!(!output.status.success(), "a superuser without a password has come in by TCP");
    let guessed = psql(&tcp, Some("freshet"), "SELECT 1").unwrap();
    assert!(printed(&guessed).contains("password authentication failed for user \"freshet\""), "{}", printed(&guessed));
    assert!(printed(&guessed).contains("ALTER ROLE ... PASSWORD"), "{}", printed(&guessed));

    let made = "CREATE ROLE ann LOGIN; ALTER ROLE freshet PASSWORD 'a secret'; SELECT inet_client_addr() IS NULL";
    let output = psql(&local, None, made).unwrap();
    assert!(output.status.success() && printed(&output).ends_with("t\n"), "{}", printed(&output));
    let seen = psql(
        &local,
        None,
        "SELECT client_addr IS NULL, client_port FROM pg_stat_activity WHERE pid = pg_backend_pid()",
    );
    assert_eq!(printed(&seen.unwrap()), "t|-1\n");
    assert!(psql(&targets(&node, sockets.path(), "ann").0, None, "SELECT 1").unwrap().status.success());
    assert_eq!(printed(&psql(&tcp, Some("a secret"), "SELECT 7").unwrap()), "7\n");
    assert!(!psql(&tcp, Some("quite wrong"), "SELECT 7").unwrap().status.success());
    // A database directory that is copied or started again keeps its roles.
    assert!(node.stop(SOON).unwrap().success());
    assert!(!socket.exists(), "the socket is left behind");
    let log = node.messages();
    for expected in
        ["a login failed", "the role has no password", "it does not know the password", "a login after failed ones"]
    {
        assert!(log.contains(expected), "{expected}: {log}");
    }
    assert!(!log.contains("a secret") && !log.contains("quite wrong"), "{log}");
    let node = start(data.path(), &flags);
    let (_, tcp) = targets(&node, sockets.path(), "freshet");
    assert_eq!(printed(&psql(&tcp, Some("a secret"), "SELECT 8").unwrap()), "8\n");
}

#[test]
fn rules_of_the_access_file_decide() {
    let (data, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sockets = tempfile::tempdir().unwrap();
    let rules = files.path().join("access");
    fs::write(&rules, "local all freshet owner\nlocal all all reject\nhost all +staff 127.0.0.1/32 trust\n").unwrap();
    let flags = [
        "--sql-listen",
        "127.0.0.1:0",
        "--sql-socket-directory",
        sockets.path().to_str().unwrap(),
        "--sql-access",
        rules.to_str().unwrap(),
    ];
    let node = start(data.path(), &flags);
    let target = |user| targets(&node, sockets.path(), user);
    let made = "CREATE ROLE staff NOLOGIN; CREATE ROLE ann LOGIN IN ROLE staff; CREATE ROLE bob LOGIN";
    let Some(output) = psql(&target("freshet").0, None, made) else { return };
    assert!(output.status.success(), "{}", printed(&output));
    assert_eq!(printed(&psql(&target("ann").1, None, "SELECT current_user").unwrap()), "ann\n");
    for (target, expected) in [
        (
            target("bob").1,
            "no pg_hba.conf entry for host \"127.0.0.1\", user \"bob\", database \"freshet\", no encryption",
        ),
        (target("freshet").1, "no pg_hba.conf entry for host \"127.0.0.1\", user \"freshet\""),
        (target("ghost").1, "no pg_hba.conf entry for host \"127.0.0.1\", user \"ghost\""),
        (target("ann").0, "pg_hba.conf rejects connection for host \"[local]\", user \"ann\""),
        (target("staff").1, "role \"staff\" is not permitted to log in"),
    ] {
        let output = psql(&target, None, "SELECT 1").unwrap();
        assert!(!output.status.success() && printed(&output).contains(expected), "{target}: {}", printed(&output));
    }
}

#[test]
fn a_file_that_is_not_understood_stops_the_start_and_is_named() {
    let (data, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let rules = files.path().join("access");
    let own = data.path().join("node");
    let flags = ["--sql-listen", "127.0.0.1:0", "--sql-access", rules.to_str().unwrap()];
    assert!(refused(&own, &flags).contains("cannot read the access file"));
    fs::write(&rules, "local all all owner\nhost all all 10.0.0.0/8 md5\nhost all\n").unwrap();
    let complaint = refused(&own, &flags);
    for expected in ["access:2: authentication method \"md5\" is not offered here", "access:3: end-of-line before role"]
    {
        assert!(complaint.contains(expected), "{complaint}");
    }
    fs::write(&rules, "hostssl all all all cert\n").unwrap();
    assert!(refused(&own, &flags).contains("give --sql-tls-ca"));
    // Nothing was made for it.
    assert!(!own.exists());
}

#[test]
fn a_place_for_sockets_that_others_share_is_not_taken_by_default() {
    let (data, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let flags = ["--sql-listen", "127.0.0.1:0", "--sql-socket-directory", "/nonexistent/place"];
    assert!(refused(&data.path().join("node"), &flags).contains("/nonexistent/place is not a directory"));
    // The directory is the user's own to choose, whatever its mode.
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let flags = ["--sql-listen", "127.0.0.1:0", "--sql-socket-directory", place.path().to_str().unwrap()];
    let first = start(&data.path().join("one"), &flags);
    // Another server at the same port elsewhere would take its name.
    let port = format!("127.0.0.2:{}", port(&first));
    let flags = ["--sql-listen", &port, "--sql-socket-directory", place.path().to_str().unwrap()];
    let complaint = refused(&data.path().join("two"), &flags);
    assert!(complaint.contains("another server listens there"), "{complaint}");
    assert!(!data.path().join("two").exists(), "a node was made that cannot serve");
    let flags = ["--sql-listen", &port, "--sql-socket-directory", "off"];
    assert!(start(&data.path().join("three"), &flags).ready().sql_socket.is_none());
}

/// An authority, and a certificate for each name.
struct Authority {
    certificate: rcgen::Certificate,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

impl Authority {
    fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "an authority of a test");
        let certificate = params.self_signed(&key).unwrap();
        Self { certificate, issuer: rcgen::Issuer::new(params, key) }
    }

    /// Writes a certificate and its key for a name; returns where.
    fn issue(&self, directory: &Path, name: &str) -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let paths = ["crt", "key"].map(|kind| directory.join(format!("{name}.{kind}")));
        fs::write(&paths[0], certificate.pem()).unwrap();
        fs::write(&paths[1], key.serialize_pem()).unwrap();
        fs::set_permissions(&paths[1], fs::Permissions::from_mode(0o600)).unwrap();
        let [certificate, key] = paths.map(|path| path.to_str().unwrap().to_owned());
        (certificate, key)
    }
}

#[test]
fn certificates_prove_roles() {
    let (data, files) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sockets = tempfile::tempdir().unwrap();
    let (ours, strangers) = (Authority::new(), Authority::new());
    let (certificate, key) = ours.issue(files.path(), "server");
    let ca = files.path().join("ca.crt");
    fs::write(&ca, ours.certificate.pem()).unwrap();
    let rules = files.path().join("access");
    fs::write(
        &rules,
        "local all all owner\nhostssl all ann all cert\nhostssl all bob all scram-sha-256 clientcert=verify-ca\n",
    )
    .unwrap();
    let flags = [
        ("--sql-listen", "127.0.0.1:0"),
        ("--sql-socket-directory", sockets.path().to_str().unwrap()),
        ("--sql-access", rules.to_str().unwrap()),
        ("--sql-tls-certificates", &certificate),
        ("--sql-tls-key", &key),
        ("--sql-tls-ca", ca.to_str().unwrap()),
    ];
    let flags: Vec<&str> = flags.iter().flat_map(|(name, value)| [*name, *value]).collect();
    let node = start(data.path(), &flags);
    let local = targets(&node, sockets.path(), "freshet").0;
    let Some(output) = psql(&local, None, "CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN PASSWORD 'a secret'") else {
        return;
    };
    assert!(output.status.success(), "{}", printed(&output));
    let by = |user: &str, shown: Option<&(String, String)>, password| {
        let port = port(&node);
        let mut target = format!("host=127.0.0.1 port={port} user={user} dbname=freshet sslmode=require");
        if let Some((certificate, key)) = shown {
            target += &format!(" sslcert={certificate} sslkey={key}");
        }
        let who = "SELECT usename FROM pg_stat_activity JOIN pg_stat_ssl USING (pid) \
                   WHERE pid = pg_backend_pid() AND ssl AND version ~ '^TLSv1' AND bits > 0";
        psql(&target, password, who).unwrap()
    };
    let (ann, bob) = (ours.issue(files.path(), "ann"), ours.issue(files.path(), "bob"));
    assert_eq!(printed(&by("ann", Some(&ann), None)), "ann\n");
    assert!(printed(&by("ann", Some(&bob), None)).contains("certificate authentication failed for user \"ann\""));
    assert!(printed(&by("ann", None, None)).contains("connection requires a valid client certificate"));
    let other = tempfile::tempdir().unwrap();
    let forged = strangers.issue(other.path(), "ann");
    assert!(!by("ann", Some(&forged), None).status.success(), "another authority's certificate is believed");
    assert_eq!(printed(&by("bob", Some(&ann), Some("a secret"))), "bob\n");
    assert!(!by("bob", Some(&bob), Some("another")).status.success());
    assert!(!by("bob", None, Some("a secret")).status.success());
    let plain = targets(&node, sockets.path(), "ann").1.replace("sslmode=prefer", "sslmode=disable");
    assert!(printed(&psql(&plain, None, "SELECT 1").unwrap()).contains("no pg_hba.conf entry for host"));
}
