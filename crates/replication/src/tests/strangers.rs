//! Strangers who say nothing, or take their time, and those who have something to say.

use std::{
    io::Write,
    net::TcpStream,
    sync::mpsc::{Receiver, Sender, channel},
    time::Duration,
};

use freshet_base::{
    NodeId, Term,
    sync::{Arc, AtomicBool, Mutex, Ordering},
};
use freshet_fabric::tcp::Connection;

use crate::{
    endpoint::{Endpoint, Service, answer},
    wire::{Hello, Purpose, Reply},
};

const PATIENCE: Duration = Duration::from_secs(20);
/// More than there are places for strangers, many times over.
const MANY: usize = 300;

/// Answers a caller that asks for the cluster, and keeps a caller that fetches the log until it is
/// told to let go.
struct Host {
    kept: Mutex<Sender<()>>,
    let_go: Mutex<Receiver<()>>,
}

/// Answers until the connection ends, and takes some time to notice.
struct Slow {
    begun: Mutex<Sender<()>>,
    over: Arc<AtomicBool>,
}

impl Service for Slow {
    fn serve(&self, _: Hello, connection: Connection) {
        self.begun.lock().unwrap().send(()).unwrap();
        let (_sender, mut receiver) = connection.split();
        while receiver.receive().is_ok() {}
        std::thread::sleep(Duration::from_millis(50));
        self.over.store(true, Ordering::SeqCst);
    }
}

impl Service for Host {
    fn serve(&self, hello: Hello, connection: Connection) {
        if let Purpose::Identify = hello.purpose {
            return answer(connection, Term(1), &Reply::NoCheckpoint);
        }
        self.kept.lock().unwrap().send(()).unwrap();
        let _ = self.let_go.lock().unwrap().recv();
    }
}

fn hello(purpose: Purpose) -> Hello {
    Hello { cluster: None, node: NodeId(7), address: String::new(), purpose }
}

fn open() -> (Endpoint, Receiver<()>, Sender<()>) {
    let endpoint = super::fixture::open(1);
    let ((kept, comes), (goes, let_go)) = (channel(), channel());
    endpoint.set_service(Some(Arc::new(Host { kept: Mutex::new(kept), let_go: Mutex::new(let_go) })));
    (endpoint, comes, goes)
}

fn identify(endpoint: &Endpoint) -> Reply {
    let address = endpoint.address().to_string();
    super::fixture::call(&address, &hello(Purpose::Identify), Term(0), PATIENCE).unwrap().0
}

#[test]
fn a_member_gets_through_while_strangers_hold_on() {
    let (endpoint, ..) = open();
    let strangers: Vec<TcpStream> = (0..MANY)
        .map(|number| {
            let mut stranger = TcpStream::connect(endpoint.address()).unwrap();
            // Some of them seem to begin.
            if number % 2 == 0 {
                let _ = stranger.write_all(b"F");
            }
            stranger
        })
        .collect();
    for _ in 0..3 {
        assert_eq!(identify(&endpoint), Reply::NoCheckpoint);
    }
    drop(strangers);
}

#[test]
fn whoever_is_served_takes_no_place_from_strangers() {
    let (endpoint, comes, goes) = open();
    let address = endpoint.address().to_string();
    // As many as there are places.
    let replicas: Vec<_> = (0..100)
        .map(|_| {
            let mut replica = super::fixture::connected(7, &address);
            let asked = hello(super::fixture::announces(NodeId(7), Term(1), ""));
            let bytes = crate::wire::encode_in(crate::wire::PROTOCOL, &asked);
            replica.sender().send(crate::wire::Kind::Hello as u8, Term(0), &bytes).unwrap();
            // The first is being served when the next comes.
            comes.recv_timeout(PATIENCE).unwrap();
            replica
        })
        .collect();
    assert_eq!(identify(&endpoint), Reply::NoCheckpoint);
    drop(goes);
    drop(replicas);
}

/// What answers holds the node's directory, which another node may want to have then.
#[test]
fn when_an_endpoint_is_gone_so_are_those_whom_it_served() {
    let endpoint = super::fixture::open(1);
    let ((begins, begun), over) = (channel(), Arc::new(AtomicBool::new(false)));
    endpoint.set_service(Some(Arc::new(Slow { begun: Mutex::new(begins), over: Arc::clone(&over) })));
    let mut replica = super::fixture::connected(7, &endpoint.address().to_string());
    let asked = crate::wire::encode_in(crate::wire::PROTOCOL, &hello(Purpose::Identify));
    replica.sender().send(crate::wire::Kind::Hello as u8, Term(0), &asked).unwrap();
    begun.recv_timeout(PATIENCE).unwrap();
    drop(endpoint);
    assert!(over.load(Ordering::SeqCst));
}
