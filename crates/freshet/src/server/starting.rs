//! Who answers clients while the node is not there yet: how far its start has come, and nothing
//! else.

use std::{
    io::Write,
    os::unix::net::UnixStream,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::{
    Failure,
    config::ServerSettings,
    http::HttpPort,
    protocol::{self, Answer, Ask, Frames, READS, Request, Response},
    server::Doors,
};

/// A client has this long for each of its requests: there is one at a time.
const PATIENCE: Duration = Duration::from_millis(200);

struct Shared {
    /// The status, as JSON.
    status: Mutex<String>,
    over: AtomicBool,
}

/// Holds the clients' address while the node starts, and answers processes of the same user on the
/// same machine. Other clients are refused: a node that starts may have no certificate yet.
pub(crate) struct Reception {
    shared: Arc<Shared>,
    http: Option<HttpPort>,
    doors: Arc<Doors>,
    threads: [JoinHandle<()>; 2],
}

impl Reception {
    /// Starts answering where `settings` say, with `status` until that is changed.
    ///
    /// # Errors
    /// When an address cannot be had.
    pub(crate) fn open(settings: &ServerSettings, status: String) -> Result<Self, Failure> {
        let http = settings.http_listen.map(|address| HttpPort::open(address, status.clone())).transpose()?;
        let doors = Arc::new(Doors::open(settings.address)?);
        let shared = Arc::new(Shared { status: Mutex::new(status), over: AtomicBool::new(false) });
        let (here, near) = (Arc::clone(&shared), Arc::clone(&doors));
        let answers = thread::Builder::new().name("reception".to_owned()).spawn(move || {
            loop {
                let stream = near.near.accept();
                if here.over.load(Ordering::SeqCst) {
                    return;
                }
                if let Ok(stream) = stream {
                    // Whatever goes wrong here is between this client and its connection.
                    let _ = here.serve(&stream);
                }
            }
        })?;
        let (here, far) = (Arc::clone(&shared), Arc::clone(&doors));
        let turns_away = thread::Builder::new().name("reception far".to_owned()).spawn(move || {
            while !here.over.load(Ordering::SeqCst) {
                drop(far.far.accept());
            }
        })?;
        Ok(Self { shared, http, doors, threads: [answers, turns_away] })
    }

    /// What to answer from now on: the status, as JSON.
    pub(crate) fn set_status(&self, status: String) {
        if let Some(http) = &self.http {
            http.set_status(status.clone());
        }
        *self.shared.status.lock().unwrap_or_else(PoisonError::into_inner) = status;
    }

    /// The node is there: gives the address back.
    ///
    /// # Errors
    /// When the thread has ended by itself, which it does not.
    pub(crate) fn close(self) -> Result<Doors, Failure> {
        let Self { shared, http, doors, threads } = self;
        shared.over.store(true, Ordering::SeqCst);
        // Clients that have come before this are answered first.
        Doors::knock(doors.address());
        let ended = || Failure::new("the thread that answers while the node starts has ended");
        for thread in threads {
            thread.join().map_err(|_| ended())?;
        }
        let doors = Arc::into_inner(doors).ok_or_else(ended)?;
        Ok(Doors { http, ..doors })
    }
}

impl Shared {
    fn serve(&self, stream: &UnixStream) -> Result<(), protocol::FrameError> {
        stream.set_read_timeout(Some(PATIENCE)).map_err(protocol::FrameError::Broken)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(protocol::FrameError::Broken)?;
        let mut frames = Frames::new(stream);
        // Hello, and a question.
        for _ in 0..2 {
            let Request { id, ask } = frames.next_frame::<Request>()?;
            let answer = match ask {
                Ask::Hello { version } if let Some(version) = READS.common(&(0..=version)) => Answer::Hello { version },
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
    fn early_clients_see_how_far_the_start_is() {
        let soon = Duration::from_secs(20);
        let settings = ServerSettings { address: "127.0.0.1:0".parse().unwrap(), ..ServerSettings::default() };
        let reception = Reception::open(&settings, String::new()).unwrap();
        let address = reception.doors.address().to_string();
        for status in ["{\"role\":\"starting\",\"done\":1}", "{\"role\":\"starting\",\"done\":2}"] {
            reception.set_status(status.to_owned());
            assert_eq!(Client::connect(&address, soon).unwrap().status(soon).unwrap(), status);
        }
        let other = Client::connect(&address, soon).unwrap().checkpoint(false, soon);
        assert!(matches!(other, Err(ClientError::Refused { .. })), "{other:?}");
        // A client that says nothing does not hold the node up.
        let silent = freshet_fabric::local::connect(super::super::LOCAL, address.parse().unwrap()).unwrap();
        let doors = reception.close().unwrap();
        assert_eq!(doors.address().to_string(), address);
        drop(silent);
    }
}
