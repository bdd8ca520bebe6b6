//! The HTTP port: health checks and metrics, for load balancers, Kubernetes and Prometheus, and the
//! operator's page ([`page`]). It only answers GET, HEAD and OPTIONS, changes nothing, and shows no
//! secret ([`answer`]).
//!
//! A few threads accept and answer, one request of a connection each. A client has [`PATIENCE`] for
//! all of it, so no more than that many clients are waited for, and for no longer.

mod answer;
mod metrics;
mod page;

use std::{
    io::{self, Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use freshet_base::wait;

use serde_json::Value;

use self::{
    answer::{Answer, Asked, Knows},
    page::Polled,
};
use crate::{Failure, server::Host};

const THREADS: usize = 4;
/// A client has this long for its request, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// After so long a thread that could not accept tries to again.
const AGAIN: Duration = Duration::from_millis(50);
/// No request is longer, in bytes, nor has it more lines.
const LONGEST: usize = 8 << 10;
const HEADERS: usize = 64;

/// Who knows the node's status.
enum Source {
    /// It starts: its status as JSON, as that was said last.
    Starting(String),
    Node(Arc<dyn Host>),
}

struct Shared {
    source: Mutex<Source>,
    polled: Polled,
    stopping: AtomicBool,
    /// Whom each thread serves.
    served: [Mutex<Option<TcpStream>>; THREADS],
}

impl Shared {
    fn set(&self, source: Source) {
        *self.source.lock().unwrap_or_else(PoisonError::into_inner) = source;
        self.polled.forget();
    }

    fn serve(&self, thread: usize, stream: Option<TcpStream>) {
        *self.served[thread].lock().unwrap_or_else(PoisonError::into_inner) = stream;
    }

    /// Whom to ask, or the status of a node that starts.
    fn source(&self) -> Result<Arc<dyn Host>, String> {
        match &*self.source.lock().unwrap_or_else(PoisonError::into_inner) {
            Source::Starting(status) => Err(status.clone()),
            Source::Node(host) => Ok(Arc::clone(host)),
        }
    }
}

/// A status of either.
fn status_of(source: &Result<Arc<dyn Host>, String>) -> Value {
    match source {
        Ok(host) => host.glance(),
        Err(starting) => serde_json::from_str(starting).unwrap_or_default(),
    }
}

impl Knows for Shared {
    fn status(&self) -> Value {
        status_of(&self.source())
    }

    fn page(&self) -> String {
        let source = self.source();
        self.polled.json(source.as_ref().ok(), || status_of(&source))
    }
}

/// The open port. Dropping it closes it, and the connections.
pub(crate) struct HttpPort {
    shared: Arc<Shared>,
    listener: Arc<TcpListener>,
    address: SocketAddr,
    threads: Vec<JoinHandle<()>>,
}

impl HttpPort {
    /// Opens it at `address`, with this `status`, as JSON, until that is changed.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub(crate) fn open(address: SocketAddr, status: String) -> Result<Self, Failure> {
        let listener = TcpListener::bind(address).map_err(|cause| {
            Failure::new(format!("cannot listen for HTTP at {address}: {cause}; choose another --http-listen"))
        })?;
        let source = Mutex::new(Source::Starting(status));
        let (polled, stopping) = (Polled::default(), AtomicBool::new(false));
        let shared = Shared { source, polled, stopping, served: Default::default() };
        let address = listener.local_addr()?;
        let mut port = Self { shared: Arc::new(shared), listener: Arc::new(listener), address, threads: Vec::new() };
        for number in 0..THREADS {
            let (shared, listener) = (Arc::clone(&port.shared), Arc::clone(&port.listener));
            let run = move || run(&shared, &listener, number);
            port.threads.push(thread::Builder::new().name(format!("http-{number}")).spawn(run)?);
        }
        Ok(port)
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// What to answer from now on while the node starts: its status, as JSON.
    pub(crate) fn set_status(&self, status: String) {
        self.shared.set(Source::Starting(status));
    }

    /// From now on `host` says how the node is.
    pub(crate) fn set_host(&self, host: Arc<dyn Host>) {
        self.shared.set(Source::Node(host));
    }
}

impl Drop for HttpPort {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // It wakes all who accept.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        for served in &self.shared.served {
            if let Some(stream) = &*served.lock().unwrap_or_else(PoisonError::into_inner) {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        for thread in self.threads.drain(..) {
            // A panic there was reported already.
            let _ = thread.join();
        }
        // A thread that is late no longer holds the node.
        self.set_status(String::new());
    }
}

fn run(shared: &Shared, listener: &TcpListener, thread: usize) {
    loop {
        let accepted = listener.accept().ok().map(|(stream, _)| stream);
        shared.serve(thread, accepted.as_ref().and_then(|stream| stream.try_clone().ok()));
        // Who closes the port finds the stream, or this finds that.
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        match accepted {
            // Whatever goes wrong here is between this client and its connection.
            Some(stream) => {
                let _ = serve(shared, &stream);
            }
            // Too many open files, say.
            None => {
                let _ = wait::sleep((Instant::now() + AGAIN).into());
            }
        }
        shared.serve(thread, None);
    }
}

/// The first header of this name, if it is text; else nothing.
fn header<'h>(headers: &[httparse::Header<'h>], name: &str) -> &'h str {
    let found = headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
    found.and_then(|header| std::str::from_utf8(header.value).ok()).unwrap_or_default().trim()
}

/// Answers one request.
fn serve(shared: &Shared, mut stream: &TcpStream) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let deadline = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    let (answer, has_body) = loop {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&bytes) {
            Ok(httparse::Status::Complete(_)) => {
                let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
                let [host, origin] = ["host", "origin"].map(|name| header(request.headers, name));
                break (Answer::to(Asked { method, target, host, origin }, shared), method != "HEAD");
            }
            Ok(httparse::Status::Partial) if bytes.len() < LONGEST => {}
            Ok(httparse::Status::Partial) | Err(_) => break (Answer::bad("this is no request that is served"), true),
        }
        let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero());
        let Some(left) = left else { return Err(io::ErrorKind::TimedOut.into()) };
        stream.set_read_timeout(Some(left))?;
        let mut some = [0; 1024];
        match stream.read(&mut some)? {
            0 => return Ok(()),
            read => bytes.extend_from_slice(&some[..read]),
        }
    };
    let mut response = answer.head().into_bytes();
    if has_body {
        response.extend_from_slice(answer.body.as_bytes());
    }
    stream.write_all(&response)
}
