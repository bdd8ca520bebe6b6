//! Who answers clients while the node is not there yet: how far its start has come, and nothing else.

use std::{
    io::Write,
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    Failure,
    protocol::{self, Answer, Ask, Frames, Request, Response, VERSION},
    server::bind,
};

/// A client has this long for each of its requests: there is one at a time.
const PATIENCE: Duration = Duration::from_millis(200);

struct Shared {
    /// The status, as JSON.
    status: Mutex<String>,
    over: AtomicBool,
}

/// Holds the clients' address while the node starts.
pub(crate) struct Reception {
    shared: Arc<Shared>,
    address: SocketAddr,
    thread: JoinHandle<TcpListener>,
}

impl Reception {
    /// Answers at `address` from now on.
    ///
    /// # Errors
    /// When the address cannot be had.
    pub(crate) fn open(address: SocketAddr) -> Result<Self, Failure> {
        let listener = bind(address)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { status: Mutex::default(), over: AtomicBool::new(false) });
        let for_thread = Arc::clone(&shared);
        let thread = thread::Builder::new().name("reception".to_owned()).spawn(move || {
            for stream in listener.incoming() {
                if for_thread.over.load(Ordering::SeqCst) {
                    break;
                }
                if let Ok(stream) = stream {
                    // Whatever goes wrong here is between this client and its connection.
                    let _ = for_thread.serve(&stream);
                }
            }
            listener
        })?;
        Ok(Self { shared, address, thread })
    }

    /// What to say from now on: the status, as JSON.
    pub(crate) fn say(&self, status: String) {
        *self.shared.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// The node is there: gives the address back.
    ///
    /// # Errors
    /// When the thread has ended by itself, which it does not.
    pub(crate) fn close(self) -> Result<TcpListener, Failure> {
        self.shared.over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts. It answers who has come before this.
        let _ = TcpStream::connect(self.address);
        self.thread.join().map_err(|_| Failure::new("the thread that answers while the node starts has ended"))
    }
}

impl Shared {
    fn serve(&self, stream: &TcpStream) -> Result<(), protocol::FrameError> {
        stream.set_read_timeout(Some(PATIENCE)).map_err(protocol::FrameError::Broken)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(protocol::FrameError::Broken)?;
        let mut frames = Frames::new(stream);
        // Hello, and a question.
        for _ in 0..2 {
            let Request { id, ask } = frames.next_frame::<Request>()?;
            let answer = match ask {
                Ask::Hello { version } if version == VERSION => Answer::Hello { version },
                Ask::Status => Answer::Status(self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()),
                _ => Answer::Refused { reason: "the node is starting: see `freshet status`".to_owned() },
            };
            let mut bytes = Vec::new();
            protocol::encode(&Response { id, answer }, &mut bytes)?;
            (&*stream).write_all(&bytes).map_err(protocol::FrameError::Broken)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Client, ClientError};

    #[test]
    fn whoever_comes_too_early_hears_how_far_the_start_is() {
        let soon = Duration::from_secs(20);
        let reception = Reception::open("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = reception.address.to_string();
        for said in ["{\"role\":\"starting\",\"done\":1}", "{\"role\":\"starting\",\"done\":2}"] {
            reception.say(said.to_owned());
            assert_eq!(Client::connect(&address, soon).unwrap().status(soon).unwrap(), said);
        }
        let other = Client::connect(&address, soon).unwrap().checkpoint(false, soon);
        assert!(matches!(other, Err(ClientError::Refused { .. })), "{other:?}");
        // A client that says nothing does not hold the node up.
        let silent = TcpStream::connect(&address).unwrap();
        let listener = reception.close().unwrap();
        assert_eq!(listener.local_addr().unwrap().to_string(), address);
        drop(silent);
    }
}
