//! Clients as people have them: tokio-postgres, psql and pgbench.

mod toy;
mod wire;

use std::{
    fs,
    io::{self, Read, Write},
    net::SocketAddr,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::PathBuf,
    process::{Command, Output, Stdio},
    sync::Arc,
    time::Duration,
};

use freshet_base::private;
use freshet_postgres::{Limits, Options, Origin, Server, Tls};
use freshet_testing::{Missing, skip};
use futures_util::{SinkExt, StreamExt, TryStreamExt, future::join_all, pin_mut};
use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, pem::PemObject},
};
use tokio_postgres::{
    AsyncMessage, Client, Config, NoTls, SimpleQueryMessage,
    config::{ChannelBinding, SslMode, SslNegotiation},
};
use tokio_postgres_rustls::MakeRustlsConnect;
use toy::{Toy, options};
use wire::{Wire, packet, startup};

fn serve() -> (Server, SocketAddr) {
    let (_, server) = Toy::serve(options(Limits::default()));
    let address = server.addresses()[0];
    (server, address)
}

fn config(address: SocketAddr, user: &str) -> Config {
    let mut config = Config::new();
    config.host("localhost").hostaddr(address.ip()).port(address.port()).user(user).dbname("toys").password("pencil");
    config
}

async fn connect(address: SocketAddr) -> Client {
    let (client, connection) = config(address, "trusted").connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn code(error: &tokio_postgres::Error) -> &str {
    error.code().unwrap_or_else(|| panic!("not of the server: {error}")).code()
}

#[tokio::test]
async fn statements_simple_and_prepared() {
    let (_server, address) = serve();
    let client = connect(address).await;
    let messages = client.simple_query("SELECT 7; BEGIN; ROLLBACK").await.unwrap();
    let rows = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    assert_eq!(rows.collect::<Vec<_>>(), ["7"]);

    let one = client.prepare("SELECT 1").await.unwrap();
    for _ in 0..3 {
        assert_eq!(client.query_one(&one, &[]).await.unwrap().get::<_, i32>(0), 1);
    }
    let row = client.query_one("ECHO $ $ $", &[&"grün", &None::<&str>, &""]).await.unwrap();
    let values: [Option<&str>; 3] = [row.get(0), row.get(1), row.get(2)];
    assert_eq!(values, [Some("grün"), None, Some("")]);
    let long = "x".repeat(10 << 20);
    assert_eq!(client.query_one("ECHO $", &[&long]).await.unwrap().get::<_, &str>(0).len(), long.len());
    assert_eq!(client.query("ROWS 100000", &[]).await.unwrap().len(), 100_000);
    assert_eq!(client.execute("SET a b", &[]).await.unwrap(), 0);
}

#[tokio::test]
async fn errors_leave_the_session_usable() {
    let (_server, address) = serve();
    let mut client = connect(address).await;
    let error = client.query("FAIL", &[]).await.unwrap_err();
    let report = error.as_db_error().unwrap();
    assert_eq!(
        (report.code().code(), report.message(), report.detail()),
        ("22012", "division by zero", Some("a detail"))
    );
    assert_eq!(report.column(), Some("c"));
    assert_eq!((report.datatype(), report.constraint(), report.hint()), (Some("d"), Some("n"), Some("a hint")));
    let transaction = client.transaction().await.unwrap();
    assert_eq!(code(&transaction.query("FAIL", &[]).await.unwrap_err()), "22012");
    assert_eq!(code(&transaction.query("SELECT 1", &[]).await.unwrap_err()), "25P02");
    transaction.rollback().await.unwrap();
    assert_eq!(client.query_one("SELECT 2", &[]).await.unwrap().get::<_, i32>(0), 2);
}

#[tokio::test]
async fn portals_are_read_a_few_rows_at_a_time() {
    let (_server, address) = serve();
    let mut client = connect(address).await;
    let transaction = client.transaction().await.unwrap();
    let portal = transaction.bind("ROWS 25", &[]).await.unwrap();
    let mut seen = Vec::new();
    loop {
        let rows = transaction.query_portal(&portal, 10).await.unwrap();
        seen.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
        if rows.len() < 10 {
            break;
        }
    }
    assert_eq!(seen, (0..25).collect::<Vec<_>>());
    transaction.commit().await.unwrap();
}

#[tokio::test]
async fn statements_are_pipelined() {
    let (_server, address) = serve();
    let client = connect(address).await;
    let statement = client.prepare("ECHO $").await.unwrap();
    let texts: Vec<_> = (0..500).map(|number| number.to_string()).collect();
    let rows = join_all(texts.iter().map(|text| client.query_one_text(&statement, text))).await;
    assert_eq!(rows, texts);
}

trait Text {
    async fn query_one_text(&self, statement: &tokio_postgres::Statement, text: &str) -> String;
}

impl Text for Client {
    async fn query_one_text(&self, statement: &tokio_postgres::Statement, text: &str) -> String {
        self.query_one(statement, &[&text]).await.unwrap().get(0)
    }
}

#[tokio::test]
async fn statements_are_canceled() {
    let (_server, address) = serve();
    let client = connect(address).await;
    let token = client.cancel_token();
    // It is void before the statement has begun.
    let cancel = async {
        loop {
            tokio::time::sleep(Duration::from_millis(50)).await;
            token.cancel_query(NoTls).await.unwrap();
        }
    };
    let waited = tokio::select! {
        waited = client.query("WAIT 20000", &[]) => waited,
        never = cancel => never,
    };
    assert_eq!(code(&waited.unwrap_err()), "57014");
    client.query("SELECT 1", &[]).await.unwrap();
}

#[tokio::test]
async fn copies() {
    let (_server, address) = serve();
    let client = connect(address).await;
    let sink = client.copy_in::<_, &[u8]>("COPY toys FROM STDIN").await.unwrap();
    pin_mut!(sink);
    for _ in 0..1000 {
        sink.send(&b"one\ntwo\n"[..]).await.unwrap();
    }
    assert_eq!(sink.finish().await.unwrap(), 2000);

    let sink = client.copy_in::<_, &[u8]>("COPY toys FROM STDIN").await.unwrap();
    pin_mut!(sink);
    sink.send(&b"bad\n"[..]).await.unwrap();
    assert_eq!(code(&sink.finish().await.unwrap_err()), "22P04");

    let copied = client.copy_out("COPYOUT 1000").await.unwrap();
    let pieces: Vec<_> = copied.try_collect().await.unwrap();
    assert_eq!((pieces.len(), &pieces[999][..]), (1000, &b"line 999\n"[..]));
    client.query("SELECT 1", &[]).await.unwrap();
}

#[tokio::test]
async fn notices_and_notifications() {
    let (toy, server) = Toy::serve(options(Limits::default()));
    let (client, mut connection) = config(server.addresses()[0], "trusted").connect(NoTls).await.unwrap();
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let mut messages = futures_util::stream::poll_fn(move |context| connection.poll_message(context));
    tokio::spawn(async move {
        while let Some(Ok(message)) = messages.next().await {
            let _ = sender.send(match message {
                AsyncMessage::Notice(notice) => notice.message().to_owned(),
                AsyncMessage::Notification(news) => format!("{}: {}", news.channel(), news.payload()),
                _ => "else".to_owned(),
            });
        }
    });
    client.batch_execute("LISTEN; NOTICE mind the gap").await.unwrap();
    assert_eq!(receiver.recv().await.unwrap(), "mind the gap");
    toy.notify("rain");
    assert_eq!(receiver.recv().await.unwrap(), "news: rain");
}

#[tokio::test]
async fn passwords() {
    let (_server, address) = serve();
    let (client, connection) = config(address, "ann").connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client.query("SELECT 1", &[]).await.unwrap();
    for user in ["ann", "nobody"] {
        let error = config(address, user).password("pencils").connect(NoTls).await.err().unwrap();
        let report = error.as_db_error().unwrap();
        assert_eq!(report.code().code(), "28P01");
        assert_eq!(report.message(), format!("password authentication failed for user \"{user}\""));
    }
    let error = config(address, "trusted").dbname("missing").connect(NoTls).await.err().unwrap();
    assert_eq!(code(&error), "3D000");
}

/// Certificate and key in files.
struct Certificate {
    directory: tempfile::TempDir,
}

impl Certificate {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        private::write(&directory.path().join("certificate.pem"), made.cert.pem().as_bytes()).unwrap();
        private::write(&directory.path().join("key.pem"), made.signing_key.serialize_pem().as_bytes()).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn tls(&self) -> Tls {
        Tls::from_files(&self.path("certificate.pem"), &self.path("key.pem"), None).unwrap()
    }

    fn connector(&self) -> MakeRustlsConnect {
        MakeRustlsConnect::new(self.client())
    }

    fn client(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.path("certificate.pem")).unwrap()).unwrap();
        ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth()
    }
}

fn serve_with_tls() -> (Certificate, Server, SocketAddr) {
    let certificate = Certificate::new();
    let mut options = options(Limits::default());
    options.tls = Some(certificate.tls());
    let (_, server) = Toy::serve(options);
    let address = server.addresses()[0];
    (certificate, server, address)
}

#[tokio::test]
async fn tls() {
    let (certificate, server, address) = serve_with_tls();
    for (user, binding) in [
        ("trusted", ChannelBinding::Disable),
        ("clear", ChannelBinding::Disable),
        ("ann", ChannelBinding::Disable),
        ("ann", ChannelBinding::Require),
    ] {
        let mut config = config(address, user);
        config.ssl_mode(SslMode::Require).channel_binding(binding);
        let (client, connection) = config.connect(certificate.connector()).await.unwrap();
        tokio::spawn(connection);
        let long = "x".repeat(3 << 20);
        assert_eq!(client.query_one("ECHO $", &[&long]).await.unwrap().get::<_, &str>(0).len(), long.len());
        assert_eq!(client.query("ROWS 100000", &[]).await.unwrap().len(), 100_000);
        let token = client.cancel_token();
        let cancel = async {
            loop {
                tokio::time::sleep(Duration::from_millis(50)).await;
                token.cancel_query(certificate.connector()).await.unwrap();
            }
        };
        let waited = tokio::select! {
            waited = client.query("WAIT 20000", &[]) => waited,
            never = cancel => never,
        };
        assert_eq!(code(&waited.unwrap_err()), "57014");
        assert!(server.sessions().terminate(client.query_one("PID", &[]).await.unwrap().get::<_, i32>(0)));
    }
    // Plain ones still get in, as the backend has it.
    connect(address).await.query("SELECT 1", &[]).await.unwrap();
    for user in ["clear", "nobody"] {
        let mut config = config(address, user);
        config.ssl_mode(SslMode::Require).password("pencils");
        let error = config.connect(certificate.connector()).await.err().unwrap();
        assert_eq!(code(&error), "28P01");
    }
    // Another certificate from now on: the old root does not do.
    let other = Certificate::new();
    server.set_tls(Some(other.tls()));
    let mut config = config(address, "trusted");
    config.ssl_mode(SslMode::Require);
    assert!(config.connect(certificate.connector()).await.is_err());
    drop(config.connect(other.connector()).await.unwrap());
    server.set_tls(None);
    assert!(config.connect(other.connector()).await.is_err());
}

#[tokio::test]
async fn tls_from_the_first_byte() {
    let (certificate, _server, address) = serve_with_tls();
    let mut config = config(address, "ann");
    config.ssl_mode(SslMode::Require).ssl_negotiation(SslNegotiation::Direct);
    let mut client = certificate.client();
    client.alpn_protocols = vec![b"postgresql".to_vec()];
    let (client, connection) = config.connect(MakeRustlsConnect::new(client)).await.unwrap();
    tokio::spawn(connection);
    client.query("SELECT 1", &[]).await.unwrap();
    // Those who do not say that they mean this protocol may have been led here.
    let error = config.connect(certificate.connector()).await.err().unwrap();
    assert_eq!(code(&error), "08P01");
}

#[test]
fn tls_that_is_broken_ends() {
    let (_certificate, server, address) = serve_with_tls();
    let asked = || {
        let mut wire = Wire::connect(address);
        wire.send(&packet(wire::TLS, b""));
        assert_eq!(wire.byte(), 'S');
        wire
    };
    // No handshake.
    let mut wire = asked();
    wire.try_send(&startup(&[("user", "trusted")]));
    let mut rest = Vec::new();
    let _ = wire.stream().read_to_end(&mut rest);
    // Or none to its end.
    drop(asked());
    // What was sent before the handshake does not count as sent inside.
    let mut wire = Wire::connect(address);
    wire.send(&[packet(wire::TLS, b""), startup(&[("user", "trusted")])].concat());
    assert_eq!(wire.last_words(), "E08P01");
    assert_eq!(server.sessions().count(), 0);
    Wire::open(address, "trusted");
}

#[test]
fn certificates_that_cannot_be_used_are_named() {
    let certificate = Certificate::new();
    let (good, key, none) = (certificate.path("certificate.pem"), certificate.path("key.pem"), certificate.path("no"));
    let error = |certificates, key| Tls::from_files(certificates, key, None).unwrap_err().to_string();
    assert!(error(&none, &key).contains("cannot read certificates from"));
    assert!(error(&good, &none).contains("could not access private key file"));
    assert!(error(&key, &key).contains("has no certificate"));
    assert!(error(&good, &good).contains("cannot read a private key from"));
    let other = Certificate::new();
    let others = other.path("key.pem");
    assert!(error(&good, &others).contains("cannot be used"));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let refusal = error(&good, &key);
    assert!(refusal.contains("has group or world access") && refusal.contains(key.to_str().unwrap()), "{refusal}");
}

/// Runs a program of PostgreSQL's, or skips the test if it is missing.
fn tool(name: &str, arguments: &[&str], input: &str) -> Option<Output> {
    let started = Command::new(name)
        .args(arguments)
        .env("PGPASSWORD", "pencil")
        .env("PGCONNECT_TIMEOUT", "10")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            skip(Missing::Tool, &format!("clients with {name}"), "it is not installed");
            return None;
        }
        Err(cause) => panic!("{name}: {cause}"),
    };
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    Some(child.wait_with_output().unwrap())
}

#[tokio::test]
async fn the_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options { socket_directory: Some(directory.path().to_owned()), ..options(Limits::default()) };
    let (toy, server) = Toy::serve(options);
    let port = server.addresses()[0].port();
    let socket = server.socket().unwrap().to_owned();
    assert_eq!(socket, directory.path().join(format!(".s.PGSQL.{port}")));

    let mut config = Config::new();
    config.host_path(directory.path()).port(port).user("trusted").dbname("toys");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(client.query_one("SELECT 1", &[]).await.unwrap().get::<_, i32>(0), 1);
    let long = "x".repeat(10 << 20);
    assert_eq!(client.query_one("ECHO $", &[&long]).await.unwrap().get::<_, &str>(0).len(), long.len());
    // The server is told the user that the system names.
    let own = fs::metadata("/proc/self").unwrap().uid();
    assert!(toy.origins.lock().unwrap().iter().all(|origin| *origin == Origin::Local { uid: own }));
    let token = client.cancel_token();
    let cancel = async {
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            token.cancel_query(NoTls).await.unwrap();
        }
    };
    let slept = tokio::select! {
        slept = client.simple_query("SLEEP 60000") => slept,
        never = cancel => never,
    };
    assert_eq!(code(&slept.unwrap_err()), "57014");
    assert_eq!(server.shut_down(Duration::from_secs(10)), 0);
    assert!(!socket.exists());
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn psql() {
    let (certificate, _server, address) = serve_with_tls();
    let root = certificate.path("certificate.pem");
    let port = address.port();
    let target = |user: &str, more: &str| format!("host=127.0.0.1 port={port} user={user} dbname=toys {more}");
    let psql = |target: &str, input: &str| tool("psql", &["-X", "-A", "-t", "-d", target], input);
    let plain = target("trusted", "sslmode=disable");

    let script =
        "SELECT 5;\nROWS 3;\nBEGIN;\nFAIL;\nSELECT 1;\nROLLBACK;\nNOTICE hello;\nCOPYOUT 2;\nSELECT 6 \\; SELECT 7;\n";
    let Some(output) = psql(&plain, script) else { return };
    assert_eq!(text(&output.stdout), "5\n0\n1\n2\nBEGIN\nROLLBACK\nNOTICE\nline 0\nline 1\n6\n7\n");
    let errors = text(&output.stderr);
    assert!(errors.contains("ERROR:  division by zero") && errors.contains("DETAIL:  a detail"), "{errors}");
    assert!(errors.contains("NOTICE:  hello"), "{errors}");

    let output = tool("psql", &["-X", "-d", &plain, "-c", "COPY toys FROM STDIN"], "a\nb\nc\n").unwrap();
    assert_eq!(text(&output.stdout), "COPY 3\n", "{}", text(&output.stderr));

    for (user, more) in [
        ("ann", "sslmode=disable".to_owned()),
        ("ann", "sslmode=require channel_binding=require".to_owned()),
        ("ann", "sslmode=require channel_binding=disable".to_owned()),
        ("clear", format!("sslmode=verify-full sslrootcert={}", root.display())),
    ] {
        let output = psql(&target(user, &more), "ENCRYPTED;").unwrap();
        let expected = if more.contains("disable") && !more.contains("require") { "false" } else { "true" };
        assert!(text(&output.stderr).contains(&format!("NOTICE:  {expected}")), "{user} {more}: {output:?}");
    }
    let output = psql(&target("nobody", "sslmode=disable"), "SELECT 1;").unwrap();
    assert!(text(&output.stderr).contains("password authentication failed for user \"nobody\""));
}

#[test]
fn pgbench() {
    let (_server, address) = serve();
    let directory = tempfile::tempdir().unwrap();
    let script = directory.path().join("script.sql");
    let port = address.port().to_string();
    for (mode, statements) in [
        ("simple", "SELECT 1;\n"),
        ("extended", "BEGIN;\nSELECT 1;\nCOMMIT;\n"),
        ("prepared", "SELECT 1;\n"),
        ("prepared", "\\startpipeline\nSELECT 1;\nSELECT 2;\nSELECT 3;\n\\endpipeline\n"),
    ] {
        fs::write(&script, statements).unwrap();
        let script = script.to_str().unwrap();
        let arguments = [
            "-n",
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "-U",
            "trusted",
            "-M",
            mode,
            "-c",
            "4",
            "-t",
            "100",
            "-f",
            script,
            "toys",
        ];
        let Some(output) = tool("pgbench", &arguments, "") else { return };
        let printed = text(&output.stdout);
        assert!(printed.contains("number of transactions actually processed: 400/400"), "{mode}: {output:?}");
    }
}
