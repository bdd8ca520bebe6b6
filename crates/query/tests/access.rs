//! Logins: rules, passwords, and what strangers learn about roles.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use crate::common::{Sql, SqlNode, config, eventually, shown};
use freshet_postgres::AccessRules;

/// Says messages to a server, and hears what it answers.
struct Wire(TcpStream);

impl Wire {
    fn connect(address: SocketAddr, user: &str) -> Self {
        let mut wire = Self(TcpStream::connect(address).unwrap());
        wire.0.set_read_timeout(Some(crate::common::SOON)).unwrap();
        wire.send(None, &[&(3_u32 << 16).to_be_bytes()[..], format!("user\0{user}\0\0").as_bytes()].concat());
        wire
    }

    fn send(&mut self, kind: Option<u8>, body: &[u8]) {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        self.0.write_all(&[kind.as_slice(), &length, body].concat()).unwrap();
    }

    fn receive(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 5];
        self.0.read_exact(&mut head).unwrap();
        let [kind, length @ ..] = head;
        let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
        self.0.read_exact(&mut body).unwrap();
        (kind, body)
    }
}

/// The salt and the iterations that a client is told that claims to be this user.
fn salt(address: SocketAddr, user: &str) -> String {
    let mut wire = Wire::connect(address, user);
    let (kind, body) = wire.receive();
    assert!(kind == b'R' && body[..4] == 10_u32.to_be_bytes(), "{user} is not asked for a password");
    let first = b"n,,n=,r=abcdefgh";
    let length = u32::try_from(first.len()).unwrap().to_be_bytes();
    wire.send(Some(b'p'), &[b"SCRAM-SHA-256\0", &length[..], first].concat());
    let (kind, body) = wire.receive();
    assert!(kind == b'R' && body[..4] == 11_u32.to_be_bytes());
    let challenge = String::from_utf8(body[4..].to_vec()).unwrap();
    challenge.split_once(",s=").unwrap().1.to_owned()
}

/// A superuser without a password does not get in just because it is on the same machine: a proxy
/// or tunnel is, too.
#[test]
fn nobody_is_let_in_by_tcp_without_a_password() {
    let node = SqlNode::guarded(config(None));
    let (kind, body) = Wire::connect(node.address(), "freshet").receive();
    assert!(kind == b'R' && body[..4] == 10_u32.to_be_bytes(), "{}", char::from(kind));
}

/// For a role without a password, or that does not exist, the salt is always the same: after a
/// restart, and on a standby.
#[test]
fn strangers_cannot_distinguish_roles_by_their_salts() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let names = ["ghost", "freshet", "another"];
    let salts = |node: &SqlNode| names.map(|name| salt(node.address(), name));
    let node = SqlNode::guarded(config(Some(directories[0].path())));
    let before = salts(&node);
    assert_eq!(salts(&node), before);
    assert!(before[0] != before[1] && before[0] != before[2]);
    drop(node);
    let primary = config(Some(directories[0].path()));
    let node = SqlNode::guarded(primary);
    assert_eq!(salts(&node), before, "after a restart");
    let mut standby = config(Some(directories[1].path()));
    standby.join = Some(node.node.address().to_owned());
    let standby = SqlNode::guarded(standby);
    eventually("the standby has the catalog", || {
        let mut wire = Wire::connect(standby.address(), "ghost");
        wire.receive().0 == b'R'
    });
    assert_eq!(salts(&standby), before, "on a standby");
    let others = SqlNode::guarded(config(None));
    assert_ne!(salts(&others), before, "each cluster has its own");
}

/// The answer to a login.
fn refusal(node: &SqlNode, user: &str, password: &str) -> String {
    match Sql::try_connect(node.address(), user, Some(password)) {
        Ok(_) => "let in".to_owned(),
        Err(error) => shown(&error).trim_end().to_owned(),
    }
}

fn with_roles(statements: &str) -> SqlNode {
    let node = SqlNode::in_memory();
    node.connect().lines(statements);
    node.server.set_access(AccessRules::parse("host all freshet all trust\nhost all all all scram-sha-256").unwrap());
    node
}

#[test]
fn a_password_counts_until_its_time() {
    let node = with_roles(
        "CREATE ROLE ann LOGIN PASSWORD 'pencil' VALID UNTIL '2020-01-01';
         CREATE ROLE bob LOGIN PASSWORD 'pencil' VALID UNTIL 'infinity';
         CREATE ROLE cid LOGIN PASSWORD 'pencil' VALID UNTIL '2100-01-01'; CREATE ROLE dan NOLOGIN PASSWORD 'pencil'",
    );
    let wrong = |user: &str| format!("28P01 password authentication failed for user \"{user}\"");
    assert_eq!(refusal(&node, "ann", "pencil"), wrong("ann"));
    assert_eq!(refusal(&node, "ann", "wrong"), wrong("ann"));
    assert_eq!(refusal(&node, "ghost", "pencil"), wrong("ghost"));
    assert_eq!(refusal(&node, "bob", "pencil"), "let in");
    assert_eq!(refusal(&node, "cid", "pencil"), "let in");
    // Only a client that knows the password is told that the role may not log in.
    assert_eq!(refusal(&node, "dan", "pencil"), "28000 role \"dan\" is not permitted to log in");
    assert_eq!(refusal(&node, "dan", "wrong"), wrong("dan"));
    let shown = "SELECT rolname, rolvaliduntil, rolconnlimit FROM pg_roles WHERE rolname IN ('ann', 'bob') ORDER BY 1";
    assert_eq!(node.connect().lines(shown), ["ann 2020-01-01 00:00:00+00 -1", "bob infinity -1"]);
    // A rule that asks for no password does not look at it.
    node.server.set_access(AccessRules::parse("host all all all trust").unwrap());
    assert_eq!(refusal(&node, "ann", "anything"), "let in");
    assert_eq!(refusal(&node, "ghost", "anything"), "28000 role \"ghost\" does not exist");
}

#[test]
fn a_role_has_so_many_sessions_at_once() {
    let node = with_roles(
        "CREATE ROLE ann LOGIN PASSWORD 'pencil' CONNECTION LIMIT 2; CREATE ROLE bob LOGIN PASSWORD 'pencil' CONNECTION LIMIT 0;
         CREATE ROLE root LOGIN SUPERUSER PASSWORD 'pencil' CONNECTION LIMIT 0",
    );
    let open = || Sql::try_connect(node.address(), "ann", Some("pencil"));
    let first = open().unwrap();
    let _second = open().unwrap();
    assert_eq!(refusal(&node, "ann", "pencil"), "53300 too many connections for role \"ann\"");
    assert_eq!(refusal(&node, "bob", "pencil"), "53300 too many connections for role \"bob\"");
    assert_eq!(refusal(&node, "root", "pencil"), "let in");
    drop(first);
    eventually("the first session's seat is free", || open().is_ok());
}

#[test]
fn sessions_begin_with_their_roles_settings() {
    let node = with_roles(
        "CREATE ROLE ann LOGIN PASSWORD 'pencil'; CREATE ROLE bob LOGIN PASSWORD 'pencil';
         ALTER ROLE ALL SET lock_timeout = '1s'; ALTER ROLE ALL SET statement_timeout = '1s';
         ALTER DATABASE freshet SET statement_timeout = '2s'; ALTER ROLE ann SET statement_timeout = '3s';
         ALTER ROLE ann IN DATABASE freshet SET statement_timeout = '4s'; ALTER ROLE ann SET TimeZone = 'Asia/Tokyo'",
    );
    let of = |user: &str| Sql::try_connect(node.address(), user, Some("pencil")).unwrap();
    let shown = "SELECT name, setting, source, reset_val FROM pg_settings
                 WHERE name IN ('lock_timeout', 'statement_timeout', 'TimeZone') ORDER BY name COLLATE \"C\"";
    let ann = of("ann");
    assert_eq!(
        ann.lines(shown),
        [
            "TimeZone Asia/Tokyo user Asia/Tokyo",
            "lock_timeout 1000 global 1000",
            "statement_timeout 4000 database user 4000"
        ]
    );
    ann.lines("SET statement_timeout = 0; RESET statement_timeout");
    assert_eq!(ann.lines("SHOW statement_timeout"), ["4s"]);
    assert_eq!(
        of("bob").lines(shown),
        ["TimeZone UTC default UTC", "lock_timeout 1000 global 1000", "statement_timeout 2000 database 2000"]
    );
    // What the client says at the start comes first.
    let mut config = Sql::config(node.address(), "ann", Some("pencil"));
    config.options("-c statement_timeout=9s");
    let ann = Sql::open(&config).unwrap();
    assert_eq!(ann.lines(shown)[2], "statement_timeout 9000 client 9000");
    let kept = "SELECT setdatabase <> 0, coalesce(rolname, '-'), setconfig FROM pg_db_role_setting
                LEFT JOIN pg_roles r ON r.oid = setrole ORDER BY 1, 2";
    assert_eq!(
        node.connect().lines(kept),
        [
            "f - {lock_timeout=1s,statement_timeout=1s}",
            "f ann {statement_timeout=3s,timezone=Asia/Tokyo}",
            "t - {statement_timeout=2s}",
            "t ann {statement_timeout=4s}"
        ]
    );
    let config = "SELECT rolconfig FROM pg_roles WHERE rolname = 'ann'";
    assert_eq!(node.connect().lines(config), ["{statement_timeout=3s,timezone=Asia/Tokyo}"]);
}

#[test]
fn what_the_server_sets_is_not_the_clients() {
    let node = SqlNode::start_within(
        config(None),
        std::sync::Arc::new(freshet_general::QueryEngine),
        freshet_query::session::settings::Bounds {
            statement_timeout: std::time::Duration::from_secs(5),
            ..Default::default()
        },
    );
    let shown = "SELECT name, setting, source FROM pg_settings
                 WHERE name IN ('statement_timeout', 'work_mem') ORDER BY name";
    assert_eq!(node.connect().lines(shown), ["statement_timeout 5000 configuration file", "work_mem 4096 default"]);
}
