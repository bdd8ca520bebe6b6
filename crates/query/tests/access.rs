//! Who gets in: rules, passwords, and what strangers learn of roles.

mod common;

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use common::{SqlNode, config, eventually};

/// Says messages to a server, and hears what it answers.
struct Wire(TcpStream);

impl Wire {
    fn connect(address: SocketAddr, user: &str) -> Self {
        let mut wire = Self(TcpStream::connect(address).unwrap());
        wire.0.set_read_timeout(Some(common::SOON)).unwrap();
        wire.say(None, &[&(3_u32 << 16).to_be_bytes()[..], format!("user\0{user}\0\0").as_bytes()].concat());
        wire
    }

    fn say(&mut self, kind: Option<u8>, body: &[u8]) {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        self.0.write_all(&[kind.as_slice(), &length, body].concat()).unwrap();
    }

    fn hear(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 5];
        self.0.read_exact(&mut head).unwrap();
        let [kind, length @ ..] = head;
        let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
        self.0.read_exact(&mut body).unwrap();
        (kind, body)
    }
}

/// The salt and the iterations that somebody is told who claims to be this user.
fn salt(address: SocketAddr, user: &str) -> String {
    let mut wire = Wire::connect(address, user);
    let (kind, body) = wire.hear();
    assert!(kind == b'R' && body[..4] == 10_u32.to_be_bytes(), "{user} is not asked for a password");
    let first = b"n,,n=,r=abcdefgh";
    let length = u32::try_from(first.len()).unwrap().to_be_bytes();
    wire.say(Some(b'p'), &[b"SCRAM-SHA-256\0", &length[..], first].concat());
    let (kind, body) = wire.hear();
    assert!(kind == b'R' && body[..4] == 11_u32.to_be_bytes());
    let said = String::from_utf8(body[4..].to_vec()).unwrap();
    said.split_once(",s=").unwrap().1.to_owned()
}

/// A superuser without a password is not let in for being on the same machine: anybody's proxy or
/// tunnel is that, too.
#[test]
fn nobody_is_let_in_by_tcp_without_a_password() {
    let node = SqlNode::guarded(config(None));
    let (kind, body) = Wire::connect(node.address(), "freshet").hear();
    assert!(kind == b'R' && body[..4] == 10_u32.to_be_bytes(), "{}", char::from(kind));
}

/// Who has no password, or is no role, is told the same salt each time: after a restart, and by a standby.
#[test]
fn strangers_cannot_tell_roles_by_their_salts() {
    let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let names = ["ghost", "freshet", "another"];
    let salts = |node: &SqlNode| names.map(|name| salt(node.address(), name));
    let node = SqlNode::guarded(config(Some(directories[0].path())));
    let before = salts(&node);
    assert_eq!(salts(&node), before);
    assert!(before[0] != before[1] && before[0] != before[2]);
    drop(node);
    let mut primary = config(Some(directories[0].path()));
    primary.standbys = 1;
    let node = SqlNode::guarded(primary);
    assert_eq!(salts(&node), before, "after a restart");
    let mut standby = config(Some(directories[1].path()));
    standby.join = Some(node.node.address().to_owned());
    standby.standbys = 1;
    let standby = SqlNode::guarded(standby);
    eventually("the standby has the catalog", || {
        let mut wire = Wire::connect(standby.address(), "ghost");
        wire.hear().0 == b'R'
    });
    assert_eq!(salts(&standby), before, "on a standby");
    let others = SqlNode::guarded(config(None));
    assert_ne!(salts(&others), before, "each cluster has its own");
}
