//! What the protocol costs by itself: a prepared `SELECT 1` that does nothing, over loopback, with
//! a light client.
//!
//! ```text
//! cargo run --release -p freshet-postgres --example floor
//! cargo run --release -p freshet-postgres --example floor -- 127.0.0.1:5432 user database pid
//! ```
//!
//! The second form measures another server that is running; `pid` is its main process, whose
//! children count too.

use std::{
    env, fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    num::NonZeroU32,
    process::{Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use freshet_postgres::{
    Access, Backend, Bind, Client, Described, Executed, Field, Format, Interrupt, Limits, Opening, Options, Out,
    Parameters, Peer, Proof, Report, Server, Session, Startup, TransactionStatus, Types, Why, conversation,
};

const SECONDS: u64 = 3;
/// Ticks of the system's clock for processes, per second.
const TICKS: f64 = 100.0;

struct Nothing;

impl Backend for Nothing {
    fn access(&self, _: &Startup, _: &Peer) -> Result<Access, Report> {
        Ok(Access::by(Proof::None))
    }

    fn open(&self, opening: Opening<'_>, serve: &mut dyn FnMut(&mut dyn Session, &Parameters)) -> Result<(), Report> {
        serve(&mut One(Format::Text), &Parameters::expected("floor", opening.startup));
        Ok(())
    }
}

impl Interrupt for Nothing {
    fn interrupt(&self, _: Why) {}
    fn clear(&self) {}
}

/// A session whose only statement returns 1, in this format.
struct One(Format);

impl One {
    fn describe(&self, out: &mut Out) -> Result<Described, Report> {
        out.row_description([Field {
            name: "?column?",
            table: 0,
            column: 0,
            type_oid: 23,
            type_size: 4,
            type_modifier: -1,
            format: self.0,
        }])
    }

    fn run(&self, out: &mut Out) -> Result<Executed, Report> {
        let mut row = out.row();
        match self.0 {
            Format::Text => row.bytes(b"1"),
            Format::Binary => row.bytes(&1_i32.to_be_bytes()),
        }
        row.finish()?;
        Ok(out.command_complete(format_args!("SELECT {}", 1)))
    }
}

impl Session for One {
    fn simple_query(&mut self, _: &str, client: &mut Client<'_>) -> Result<(), Report> {
        let _ = self.describe(client)?;
        let _ = self.run(client)?;
        Ok(())
    }
    fn parse(&mut self, _: &str, _: &str, _: Types<'_>, _: &mut Out) -> Result<(), Report> {
        Ok(())
    }
    fn bind(&mut self, bind: &Bind<'_>, _: &mut Out) -> Result<(), Report> {
        self.0 = bind.results.of(0);
        Ok(())
    }
    fn describe_statement(&mut self, _: &str, out: &mut Out) -> Result<Described, Report> {
        out.parameter_description(&[]);
        self.describe(out)
    }
    fn describe_portal(&mut self, _: &str, out: &mut Out) -> Result<Described, Report> {
        self.describe(out)
    }
    fn execute(&mut self, _: &str, _: Option<NonZeroU32>, client: &mut Client<'_>) -> Result<Executed, Report> {
        self.run(client)
    }
    fn close_statement(&mut self, _: &str) -> Result<(), Report> {
        Ok(())
    }
    fn close_portal(&mut self, _: &str) -> Result<(), Report> {
        Ok(())
    }
    fn sync(&mut self, _: &mut Out) -> Result<(), Report> {
        Ok(())
    }
    fn failed(&mut self, _: &Report) {}
    fn status(&self) -> TransactionStatus {
        TransactionStatus::Idle
    }
    fn interrupt(&self) -> Arc<dyn Interrupt> {
        Arc::new(Nothing)
    }
    fn flushes(&self) -> bool {
        true
    }
}

fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("messages here are short");
    [&[kind], &length.to_be_bytes()[..], body].concat()
}

fn startup(user: &str, database: &str) -> Vec<u8> {
    let body = format!("user\0{user}\0database\0{database}\0\0");
    let length = u32::try_from(body.len() + 8).expect("names here are short");
    [&length.to_be_bytes()[..], &(3_u32 << 16).to_be_bytes(), body.as_bytes()].concat()
}

/// How statements are sent: what is said for each, how many go together, and whether each has a
/// Sync of its own.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    described: bool,
    together: usize,
    syncs: bool,
}

const SHAPES: [Shape; 4] = [
    Shape { name: "bind, execute, sync", described: false, together: 1, syncs: true },
    Shape { name: "bind, describe, execute, sync", described: true, together: 1, syncs: true },
    Shape { name: "10 together, one sync", described: true, together: 10, syncs: false },
    Shape { name: "10 together, a sync each", described: true, together: 10, syncs: true },
];

impl Shape {
    fn request(self) -> Vec<u8> {
        let mut request = Vec::new();
        for _ in 0..self.together {
            request.extend(message(b'B', b"\0s\0\0\0\0\0\0\x01\0\x01"));
            if self.described {
                request.extend(message(b'D', b"P\0"));
            }
            request.extend(message(b'E', b"\0\0\0\0\0"));
            if self.syncs {
                request.extend(message(b'S', b""));
            }
        }
        if !self.syncs {
            request.extend(message(b'S', b""));
        }
        request
    }

    fn ready(self) -> usize {
        if self.syncs { self.together } else { 1 }
    }
}

/// Reads up to the server being ready so often; returns how many bytes that took.
fn receive(stream: &mut TcpStream, mut ready: usize) -> io::Result<usize> {
    let mut bytes = 0;
    while ready > 0 {
        let mut head = [0; 5];
        stream.read_exact(&mut head)?;
        let length = usize::try_from(u32::from_be_bytes([head[1], head[2], head[3], head[4]])).unwrap_or_default();
        let mut body = vec![0; length - 4];
        stream.read_exact(&mut body)?;
        if head[0] == b'E' {
            return Err(io::Error::other(String::from_utf8_lossy(&body).replace('\0', " ")));
        }
        ready -= usize::from(head[0] == b'Z');
        bytes += 1 + length;
    }
    Ok(bytes)
}

/// The processor time of a process and its children, in seconds.
fn processor_time(pid: u32) -> f64 {
    let mut ticks = 0.0;
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(stat) = fs::read_to_string(process.path().join("stat")) else { continue };
        // What follows the name, which is in parentheses.
        let Some((before, after)) = stat.rsplit_once(") ") else { continue };
        let fields: Vec<_> = after.split(' ').collect();
        let number = |field: &str| field.parse::<f64>().unwrap_or_default();
        let is_it = before.split(' ').next() == Some(&pid.to_string()) || fields[1] == pid.to_string();
        if is_it {
            ticks += number(fields[11]) + number(fields[12]);
        }
    }
    ticks / TICKS
}

fn measure(
    address: SocketAddr,
    user: &str,
    database: &str,
    pid: u32,
    connections: usize,
    shape: Shape,
) -> io::Result<()> {
    let mut streams = Vec::new();
    for _ in 0..connections {
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.write_all(&startup(user, database))?;
        receive(&mut stream, 1)?;
        stream.write_all(&[message(b'P', b"s\0SELECT 1\0\0\0"), message(b'S', b"")].concat())?;
        receive(&mut stream, 1)?;
        streams.push(stream);
    }
    let request = shape.request();
    streams[0].write_all(&request)?;
    let mut answer = vec![0; receive(&mut streams[0], shape.ready())?];
    let (begun, used) = (Instant::now(), processor_time(pid));
    let mut statements = 0;
    while begun.elapsed() < Duration::from_secs(SECONDS) {
        for stream in &mut streams {
            stream.write_all(&request)?;
        }
        for stream in &mut streams {
            stream.read_exact(&mut answer)?;
        }
        statements += connections * shape.together;
    }
    let (elapsed, used) = (begun.elapsed().as_secs_f64(), processor_time(pid) - used);
    let statements = statements as f64;
    println!(
        "{:<30} {connections:>3} connections {:>8.1} k/s {:>6.2} µs of the server's processor time each",
        shape.name,
        statements / elapsed / 1e3,
        used / statements * 1e6
    );
    Ok(())
}

/// Without system calls: decoding, dispatching, encoding.
fn in_memory() {
    const STATEMENTS: u32 = 200_000;
    for shape in &SHAPES[..2] {
        let mut bytes = startup("user", "database");
        bytes.extend(shape.request().repeat(STATEMENTS as usize));
        let begun = Instant::now();
        let answers = conversation(Arc::new(Nothing), Limits::default(), &bytes, 64);
        let each = begun.elapsed() / STATEMENTS;
        println!("{:<30} in memory {each:?} each, {} bytes of answers", shape.name, answers.len());
    }
}

fn serve() -> io::Result<()> {
    let addresses = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    let server =
        Server::start(Arc::new(Nothing), Options { addresses, ..Options::default() }).map_err(io::Error::other)?;
    println!("{}", server.addresses()[0]);
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

fn all(address: SocketAddr, user: &str, database: &str, pid: u32) -> io::Result<()> {
    for shape in SHAPES {
        for connections in [1, 8, 32] {
            measure(address, user, database, pid, connections, shape)?;
        }
    }
    Ok(())
}

fn main() -> io::Result<()> {
    let arguments: Vec<_> = env::args().skip(1).collect();
    let texts: Vec<_> = arguments.iter().map(String::as_str).collect();
    match texts[..] {
        ["serve"] => serve(),
        [address, user, database, pid] => {
            all(address.parse().map_err(io::Error::other)?, user, database, pid.parse().map_err(io::Error::other)?)
        }
        _ => {
            in_memory();
            let mut server =
                Command::new(env::current_exe()?).arg("serve").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
            let mut address = String::new();
            let output = server.stdout.take().ok_or_else(|| io::Error::other("the server has no output"))?;
            BufReader::new(output).read_line(&mut address)?;
            let measured = all(address.trim().parse().map_err(io::Error::other)?, "user", "database", server.id());
            // Its input ends, and so does it.
            drop(server.stdin.take());
            server.wait()?;
            measured
        }
    }
}
