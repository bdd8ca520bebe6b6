//! `freshet-lab node`: a node as `freshet serve` runs it, and beside it, at a socket of its own,
//! what benchmarks ask of their nodes. Only processes of the same user reach that.
//!
//! A connection carries one request and its answer, in the frames of the control port.

use std::{
    any::Any,
    io::Write,
    net::SocketAddr,
    os::unix::net::UnixStream,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use clap::Args;
use freshet::{
    Failure,
    protocol::{Frames, encode},
    serve::{self, Beside},
};
use freshet_engine::{Database, executors};
use freshet_fabric::local::{self, LocalListener};
use freshet_workloads::{
    TableSet,
    procedure::read_only,
    tpcc::{
        command::Commands,
        consistency::{Verdict, check},
        tables::Tables,
    },
};
use serde::{Deserialize, Serialize};

use crate::readers::{ReaderTotals, Readers, StartReaders};

/// The purpose of the socket.
const LABORATORY: &str = "laboratory";
/// How long a request may take to arrive.
const PATIENCE: Duration = Duration::from_secs(1);

/// Options of `freshet-lab node`.
#[derive(Debug, Args)]
#[command(args_override_self = true)]
pub(crate) struct BenchmarkNode {
    #[command(flatten)]
    node: serve::NodeOptions,
    /// How many readers there are at most.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(0..=64))]
    readers: u16,
}

/// What a benchmark asks of a node.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Checks TPC-C's consistency conditions 1 to 12.
    Check,
    /// Ends the readers that run, and starts others.
    StartReaders(StartReaders),
    /// What readers have done since the node started.
    ReaderTotals,
}

/// What the node says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Checked(Vec<Verdict>),
    Started,
    ReaderTotals(ReaderTotals),
    /// Why it did not.
    Refused(String),
}

/// Runs a node. Blocks until it has ended.
pub(crate) fn run(options: &BenchmarkNode) -> Result<ExitCode, Failure> {
    let begin = |database: &Database, control: SocketAddr| -> Result<Box<dyn Any>, Failure> {
        Ok(Box::new(Door::open(database, control)?))
    };
    // One checks.
    let workers = usize::from(options.readers) + 1;
    serve::node(
        &options.node,
        Beside { workers, executors: Some(executors(Commands::default)), begin: Box::new(begin) },
    )
}

/// Asks the node whose control port this is. Blocks for `patience` at most.
pub(crate) fn ask(control: &str, ask: Ask, patience: Duration) -> Result<Answer, Failure> {
    let control: SocketAddr = control.parse()?;
    let stream = local::connect(LABORATORY, control)?;
    let mut stream = stream.ok_or_else(|| Failure::new(format!("no node of the laboratory is at {control}")))?;
    stream.set_read_timeout(Some(patience))?;
    send(&mut stream, &ask)?;
    match Frames::new(stream).next_frame()? {
        Answer::Refused(why) => Err(Failure::new(why)),
        answer => Ok(answer),
    }
}

fn send(stream: &mut UnixStream, message: &impl Serialize) -> Result<(), Failure> {
    let mut bytes = Vec::new();
    encode(message, &mut bytes)?;
    Ok(stream.write_all(&bytes)?)
}

/// Where benchmarks ask. Dropping it ends it, and all readers.
struct Door {
    shared: Arc<Shared>,
    control: SocketAddr,
    accepts: Option<JoinHandle<()>>,
}

struct Shared {
    database: Database,
    readers: Readers,
    stopping: AtomicBool,
}

impl Door {
    fn open(database: &Database, control: SocketAddr) -> Result<Self, Failure> {
        let listener = LocalListener::bind(LABORATORY, control)?;
        let (database, readers, stopping) = (database.clone(), Readers::default(), AtomicBool::new(false));
        let shared = Arc::new(Shared { database, readers, stopping });
        let served = Arc::clone(&shared);
        let accepts = thread::Builder::new().name("laboratory".to_owned()).spawn(move || served.accept(&listener))?;
        Ok(Self { shared, control, accepts: Some(accepts) })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        drop(local::connect(LABORATORY, self.control));
        if let Some(accepts) = self.accepts.take() {
            let _ = accepts.join();
        }
        self.shared.readers.stop();
    }
}

impl Shared {
    fn accept(&self, listener: &LocalListener) {
        while let Ok(mut stream) = listener.accept() {
            if self.stopping.load(Ordering::SeqCst) {
                return;
            }
            // A benchmark asks at once, and one thing after the other. If it has gone, it needs no
            // answer.
            let _ = stream.set_read_timeout(Some(PATIENCE));
            let answered = Frames::new(&stream).next_frame().map(|ask| self.answer(ask));
            if let Ok(answer) = answered {
                let _ = send(&mut stream, &answer.unwrap_or_else(|failure| Answer::Refused(failure.to_string())));
            }
        }
    }

    fn answer(&self, ask: Ask) -> Result<Answer, Failure> {
        match ask {
            Ask::Check => {
                let (worker, tables) = (self.database.worker()?, Tables::open(&self.database)?);
                let (verdicts, ticket) = read_only(&worker, |txn| check(txn, &tables))?;
                self.database.wait(ticket)?;
                Ok(Answer::Checked(verdicts))
            }
            Ask::StartReaders(order) => {
                self.readers.start(&self.database, order).map_err(Failure::new)?;
                Ok(Answer::Started)
            }
            Ask::ReaderTotals => Ok(Answer::ReaderTotals(self.readers.totals())),
        }
    }
}
