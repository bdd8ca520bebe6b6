//! A network for nodes that are processes: a namespace for each, and a cable from there to one
//! switch, so that there is something to cut.
//!
//! Namespaces have no names here. They, their cables and the switch are gone with the last process
//! that is in them and the last file that holds them, however this process ends.
//!
//! There, control ports and SQL sockets are reached as on one machine, whatever is cut; nodes are
//! on different machines to one another, so who joins needs a token.
//!
//! All neighbours are known beforehand (`ip neigh`). What a node sends to another one is lost when
//! it knows that one under a hardware address that no node has: it gets no answer and no refusal.

use std::{
    fs::File,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr},
    os::fd::{AsFd, AsRawFd},
    process::{Command, Output, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use freshet_workloads::random::Random;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::Failure;

/// What all this needs.
const NEEDS: &str = "a network to cut needs the rights of root and the programs unshare (util-linux) and ip and tc \
                     (iproute2)";
/// An end that there is not.
const NOBODY: usize = 200;
/// The ports of each node. Only the second one is on its cable.
const CONTROL: u16 = 4000;
const LISTEN: u16 = 4001;
const SQL: u16 = 5000;
/// A slow cable: late and lossy packets, or, where the kernel has no netem, a narrow one.
const SLOW: [&str; 2] = ["netem delay 40ms 30ms loss 2%", "tbf rate 2mbit burst 16kb latency 200ms"];

/// Whose packets are lost when a node is cut from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Both.
    Both,
    /// Those that it sends.
    Out,
    /// Those that are sent to it.
    In,
}

/// For how long a flapping cable is cut, or whole, in milliseconds: one of these.
const TURNS: [u64; 6] = [200, 400, 800, 1_500, 3_000, 5_000];

/// For how long a flapping cable is cut, or whole, the next time.
pub fn turn(random: &mut Random) -> Duration {
    Duration::from_millis(TURNS[random.below(TURNS.len() as u64) as usize])
}

/// The network. Its ends are numbered: nodes, and then the witness.
pub struct Net {
    _switch: File,
    ends: Vec<File>,
    /// Some cable may be slow.
    slowed: AtomicBool,
}

fn address(end: usize) -> Ipv4Addr {
    // Of the range for benchmarks; no other machine is reached from here in any case.
    Ipv4Addr::new(198, 18, 0, end as u8 + 1)
}

fn hardware(end: usize) -> String {
    format!("02:00:00:00:00:{:02x}", end + 1)
}

/// Has packets to `of` go to the hardware address of `to`.
fn neighbour(of: usize, to: usize) -> String {
    format!("neigh replace {} lladdr {} dev cable nud permanent\n", address(of), hardware(to))
}

fn needs(why: impl std::fmt::Display) -> Failure {
    Failure::new(format!("{NEEDS}: {why}"))
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

/// A namespace that nothing is in.
fn namespace() -> Result<File, Failure> {
    let mut holder = Command::new("unshare")
        .args(["--net", "sh", "-c", "echo; read _"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|cause| needs(format!("unshare: {cause}")))?;
    let made = holder.stdout.as_mut().is_some_and(|stdout| stdout.read_exact(&mut [0]).is_ok());
    let opened = File::open(format!("/proc/{}/ns/net", holder.id()));
    // It ends with its standard input.
    let output = holder.wait_with_output()?;
    if made { Ok(opened?) } else { Err(needs(complaint(&output))) }
}

/// Runs a deed on a thread in a namespace; so are the processes that it starts.
fn within<T: Send>(namespace: &File, deed: impl FnOnce() -> T + Send) -> Result<T, Failure> {
    let enter_and_do = || {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok::<_, std::io::Error>(deed())
    };
    let joined = thread::scope(|scope| scope.spawn(enter_and_do).join());
    joined.map_err(|_| Failure::new("a thread in a namespace panicked"))?.map_err(needs)
}

/// Runs these lines by `ip` in a namespace.
fn ip(namespace: &File, lines: &str) -> Result<(), Failure> {
    within(namespace, || {
        let ip = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut ip = ip.map_err(|cause| needs(format!("ip: {cause}")))?;
        let written = ip.stdin.take().map(|mut stdin| stdin.write_all(lines.as_bytes()));
        let output = ip.wait_with_output()?;
        written.transpose()?;
        if output.status.success() { Ok(()) } else { Err(needs(format!("ip: {}", complaint(&output)))) }
    })?
}

impl Net {
    /// Makes one with that number of ends.
    ///
    /// # Errors
    /// When a right or a program is missing.
    pub fn prepare(ends: usize) -> Result<Self, Failure> {
        let switch = namespace()?;
        let files = (0..ends).map(|_| namespace()).collect::<Result<Vec<_>, _>>()?;
        ip(&switch, "link add switch type bridge\nlink set switch up\n")?;
        for (end, file) in files.iter().enumerate() {
            let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
            let cable = format!("link add end{end} type veth peer name cable address {} netns {path}\n", hardware(end));
            ip(&switch, &format!("{cable}link set end{end} master switch up\n"))?;
            ip(file, &format!("link set lo up\nlink set cable up\naddr add {}/24 dev cable\n", address(end)))?;
        }
        let net = Self { _switch: switch, ends: files, slowed: AtomicBool::new(false) };
        net.heal()?;
        Ok(net)
    }

    /// The addresses of the control port, the node port and the SQL port of an end.
    pub fn addresses(end: usize) -> [SocketAddr; 3] {
        // That of SQL is in the name of a file, too.
        let [address, sql] = [CONTROL, SQL + end as u16].map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        [address, SocketAddr::from((self::address(end), LISTEN)), sql]
    }

    /// Does it where an end is, on another thread; so run the processes that it starts.
    ///
    /// # Errors
    /// When the namespace cannot be entered.
    pub fn at<T: Send>(&self, end: usize, deed: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        within(&self.ends[end], deed)
    }

    /// All ends but one.
    pub fn others(&self, end: usize) -> Vec<usize> {
        (0..self.ends.len()).filter(|other| *other != end).collect()
    }

    /// What `from` sends to these others arrives, or not.
    fn route(&self, from: usize, others: &[usize], arrives: bool) -> Result<(), Failure> {
        let line = |other: &usize| neighbour(*other, if arrives { *other } else { NOBODY });
        ip(&self.ends[from], &others.iter().map(line).collect::<String>())
    }

    /// Cuts an end from these others.
    ///
    /// # Errors
    /// When `ip` refuses it.
    pub fn cut(&self, end: usize, others: &[usize], way: Way) -> Result<(), Failure> {
        if way != Way::In {
            self.route(end, others, false)?;
        }
        let silent = others.iter().filter(|_| way != Way::Out);
        silent.copied().try_for_each(|other| self.route(other, &[end], false))
    }

    /// Makes the cable of an end slow; says how.
    ///
    /// # Errors
    /// When `tc` refuses it.
    pub fn slow(&self, end: usize) -> Result<&'static str, Failure> {
        self.slowed.store(true, Ordering::Relaxed);
        let mut refused = String::new();
        for how in SLOW {
            match self.shape(end, how)? {
                output if output.status.success() => return Ok(how),
                output => refused = complaint(&output),
            }
        }
        Err(needs(format!("tc: {refused}")))
    }

    fn shape(&self, end: usize, how: &str) -> Result<Output, Failure> {
        let arguments = ["qdisc", "replace", "dev", "cable", "root"];
        let run = || Command::new("tc").args(arguments).args(how.split(' ')).output();
        within(&self.ends[end], run)?.map_err(|cause| needs(format!("tc: {cause}")))
    }

    /// All cables are whole and fast.
    ///
    /// # Errors
    /// When `ip` or `tc` refuses it.
    pub fn heal(&self) -> Result<(), Failure> {
        let was_slowed = self.slowed.swap(false, Ordering::Relaxed);
        for end in 0..self.ends.len() {
            self.route(end, &self.others(end), true)?;
            if was_slowed {
                self.shape(end, "pfifo")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use freshet_fabric::tcp::Listener;
    use freshet_testing::{Missing, skip};

    use super::*;

    /// How long what is cut is looked at.
    const SILENCE: Duration = Duration::from_millis(300);
    const SOON: Duration = Duration::from_secs(30);

    /// Sends a byte; whether it arrives.
    fn arrives(from: &mut TcpStream, to: &mut TcpStream, patience: Duration) -> bool {
        to.set_read_timeout(Some(patience)).unwrap();
        from.write_all(&[1]).unwrap();
        to.read_exact(&mut [0]).is_ok()
    }

    #[test]
    fn a_cut_loses_what_one_sends_or_both_and_nothing_else() {
        let net = match Net::prepare(3) {
            Ok(net) => net,
            Err(why) => return skip(Missing::Tool, "a network to cut", &why.to_string()),
        };
        let [_, at, _] = Net::addresses(1);
        let listener = within(&net.ends[1], || TcpListener::bind(at).unwrap()).unwrap();
        let connect = |end: usize| within(&net.ends[end], || TcpStream::connect_timeout(&at, SOON).unwrap()).unwrap();
        let pair = |end| (connect(end), listener.accept().unwrap().0);
        let (mut a, mut b) = pair(0);
        let (mut c, mut also_b) = pair(2);
        assert!(arrives(&mut a, &mut b, SOON) && arrives(&mut b, &mut a, SOON));

        net.cut(1, &[0], Way::Out).unwrap();
        assert!(!arrives(&mut b, &mut a, SILENCE), "cut");
        assert!(arrives(&mut a, &mut b, SOON), "the other way is whole");
        assert!(arrives(&mut also_b, &mut c, SOON), "and so is another cable");
        net.heal().unwrap();
        assert!(a.read_exact(&mut [0]).is_ok(), "what was lost is sent again");

        net.cut(1, &[0, 2], Way::Both).unwrap();
        net.slow(1).unwrap();
        let refused = within(&net.ends[0], || TcpStream::connect_timeout(&at, SILENCE)).unwrap().unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::TimedOut, "nobody refuses");
        net.heal().unwrap();
        assert!(arrives(&mut a, &mut b, SOON) && arrives(&mut c, &mut also_b, SOON));
    }

    #[test]
    fn a_closed_listener_lets_nobody_wait_although_its_address_is_gone() {
        let net = match Net::prepare(1) {
            Ok(net) => net,
            Err(why) => return skip(Missing::Tool, "a listener without its address", &why.to_string()),
        };
        let [_, at, _] = Net::addresses(0);
        let listener = within(&net.ends[0], || Listener::bind(&at.to_string()).unwrap()).unwrap();
        ip(&net.ends[0], "link del cable\n").unwrap();
        let closer = listener.closer();
        let waiting = thread::spawn(move || listener.accept().unwrap().is_none());
        within(&net.ends[0], || closer.close()).unwrap();
        assert!(waiting.join().unwrap());
    }
}
