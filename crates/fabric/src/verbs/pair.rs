//! A queue pair and its completion queues.

use std::{
    ffi::{c_int, c_uint},
    fmt, io,
    mem::zeroed,
    os::fd::{BorrowedFd, RawFd},
    ptr::{NonNull, null_mut},
    time::Instant,
};

use freshet_base::sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering};
use rustix::event::{PollFd, PollFlags, poll};

use super::{
    device::{Device, Memory, made, outcome, refused},
    sys::{self, WorkCompletion},
};
use crate::OpenError;

/// So often a packet is sent again before the connection counts as lost.
pub const RETRIES: u8 = 6;

/// One request of a chain: work between a part of this side's memory, in bytes, and the other
/// side's address and key.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub work: Work,
    pub at: usize,
    pub length: usize,
    pub remote: (u64, u32),
}

/// A completion queue, and the channel at which one thread can sleep until something completes.
pub struct Completions {
    device: Arc<Device>,
    queue: NonNull<sys::CompletionQueue>,
    channel: NonNull<sys::Channel>,
    /// An event was asked for and not yet taken.
    armed: AtomicBool,
}

// SAFETY: libibverbs lets any thread poll; the rest stays as it was made.
unsafe impl Send for Completions {}
// SAFETY: as above.
unsafe impl Sync for Completions {}

impl Completions {
    /// One for `entries` completions, or as many as the device can hold.
    pub fn new(device: &Arc<Device>, entries: u32) -> Result<Self, OpenError> {
        let entries = c_int::try_from(entries).unwrap_or(c_int::MAX).min(device.attributes.max_cqe);
        // SAFETY: an open context.
        let channel =
            made("a completion channel", unsafe { (device.library.create_channel)(device.context.as_ptr()) })?;
        let give_back = |error| {
            // SAFETY: made above, and given back once.
            unsafe { (device.library.destroy_channel)(channel.as_ptr()) };
            error
        };
        // SAFETY: made above, and not given back yet.
        let descriptor = unsafe { channel.as_ref() }.descriptor;
        // SAFETY: the channel's descriptor is open.
        let borrowed = unsafe { BorrowedFd::borrow_raw(descriptor) };
        // An event that another look has taken must not block.
        rustix::fs::fcntl_getfl(borrowed)
            .and_then(|flags| rustix::fs::fcntl_setfl(borrowed, flags | rustix::fs::OFlags::NONBLOCK))
            .map_err(|error| give_back(refused("a completion channel", &error.into())))?;
        // SAFETY: context and channel are open; there is no context of ours to remember.
        let queue =
            unsafe { (device.library.create_cq)(device.context.as_ptr(), entries, null_mut(), channel.as_ptr(), 0) };
        let queue = made("a completion queue", queue).map_err(give_back)?;
        Ok(Self { device: Arc::clone(device), queue, channel, armed: AtomicBool::new(false) })
    }

    /// Takes what has completed; never blocks.
    pub fn poll(&self, into: &mut [WorkCompletion]) -> io::Result<usize> {
        let room = c_int::try_from(into.len()).unwrap_or(c_int::MAX);
        // SAFETY: the queue's first field, set when it was made.
        let context = unsafe { self.queue.as_ref() }.context;
        // SAFETY: the context is open as long as the device is.
        let poll = unsafe { (*context).ops.poll_cq }.ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: the driver's function for this queue; there is room for as many as are asked for.
        let count = unsafe { poll(self.queue.as_ptr(), room, into.as_mut_ptr()) };
        let count = usize::try_from(count).map_err(|_| io::Error::other("the completion queue cannot be polled"))?;
        if count > into.len() {
            return Err(io::Error::other("the completion queue has returned more than was asked for"));
        }
        Ok(count)
    }

    /// Asks for an event at the next completion. Whatever completed before is found by a poll after
    /// this.
    pub fn arm(&self) -> io::Result<()> {
        // Relaxed, here and below: only the thread that owns this side of the connection sleeps.
        if self.armed.load(Ordering::Relaxed) {
            return Ok(());
        }
        // SAFETY: as in `poll`.
        let context = unsafe { self.queue.as_ref() }.context;
        // SAFETY: as in `poll`.
        let notify = unsafe { (*context).ops.req_notify_cq }.ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: the driver's function for this queue; zero: any completion.
        outcome(unsafe { notify(self.queue.as_ptr(), 0) })?;
        self.armed.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Sleeps until something completes, `other` can be read, or it is `until`.
    pub fn sleep(&self, other: BorrowedFd<'_>, until: Instant) -> io::Result<()> {
        // SAFETY: open as long as this value lives.
        let channel = unsafe { BorrowedFd::borrow_raw(self.descriptor()) };
        let left = until.saturating_duration_since(Instant::now());
        let left = rustix::event::Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut waited = [PollFd::new(&channel, PollFlags::IN), PollFd::new(&other, PollFlags::IN)];
        match poll(&mut waited, Some(&left)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        if waited[0].revents().is_empty() {
            return Ok(());
        }
        let (mut queue, mut ours) = (null_mut(), null_mut());
        // SAFETY: the channel is open, and there are places for the answer; it does not block, by
        // its descriptor's flags.
        if unsafe { (self.device.library.get_cq_event)(self.channel.as_ptr(), &mut queue, &mut ours) } == 0 {
            // SAFETY: an event of this channel's only queue, which must know that it was taken.
            unsafe { (self.device.library.ack_cq_events)(self.queue.as_ptr(), 1) };
            self.armed.store(false, Ordering::Relaxed);
            return Ok(());
        }
        match io::Error::last_os_error() {
            error if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(()),
            error => Err(error),
        }
    }

    fn descriptor(&self) -> RawFd {
        // SAFETY: open as long as this value lives.
        unsafe { self.channel.as_ref() }.descriptor
    }
}

impl Drop for Completions {
    fn drop(&mut self) {
        // SAFETY: each given back once, after the queue pair that completes into it, and every
        // event was acknowledged.
        unsafe {
            (self.device.library.destroy_cq)(self.queue.as_ptr());
            (self.device.library.destroy_channel)(self.channel.as_ptr());
        }
    }
}

/// What is wanted of the other side's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Write,
    WriteWithImm(u32),
    Read,
    FetchAdd(u64),
}

impl Work {
    /// What its completion says that it was.
    pub fn completes_as(self) -> c_uint {
        match self {
            Self::Write | Self::WriteWithImm(_) => sys::COMPLETED_WRITE,
            Self::Read => sys::COMPLETED_READ,
            Self::FetchAdd(_) => sys::COMPLETED_FETCH_ADD,
        }
    }
}

/// A request as the verbs have it; what it is chained to, and where its piece is, is still to come.
fn asked(request: &Request, id: u64, signaled: bool) -> sys::SendRequest {
    let (address, key) = request.remote;
    let memory = sys::Remote { memory: sys::RemoteMemory { address, key } };
    let (operation, remote) = match request.work {
        Work::Write => (sys::POST_WRITE, memory),
        Work::WriteWithImm(_) => (sys::POST_WRITE_WITH_IMM, memory),
        Work::Read => (sys::POST_READ, memory),
        Work::FetchAdd(add) => {
            (sys::POST_FETCH_ADD, sys::Remote { atomic: sys::RemoteWord { address, add, swap: 0, key } })
        }
    };
    let immediate = if let Work::WriteWithImm(value) = request.work { value.to_be() } else { 0 };
    sys::SendRequest {
        id,
        next: null_mut(),
        pieces: null_mut(),
        // To some devices a length of zero means two gigabytes.
        piece_count: c_int::from(request.length > 0),
        operation,
        flags: if signaled { sys::SIGNALED } else { 0 },
        immediate,
        remote,
        others: [0; 7],
    }
}

/// The other side of a queue pair.
#[derive(Clone, Copy, Debug)]
pub struct Other {
    pub number: u32,
    pub sequence: u32,
    pub gid: [u8; 16],
    pub lid: u16,
    pub mtu: u32,
}

/// A reliable connected queue pair, with its completion queues and the memory of this side.
pub struct Pair {
    queue: NonNull<sys::QueuePair>,
    /// Of what this side posts.
    pub sent: Completions,
    /// Of what the other side has written with an immediate value.
    pub received: Completions,
    /// What was offered.
    memories: Mutex<Vec<Memory>>,
    depth: u32,
    receives: u32,
    device: Arc<Device>,
}

// SAFETY: libibverbs lets any thread post and modify; the rest stays as it was made.
unsafe impl Send for Pair {}
// SAFETY: as above.
unsafe impl Sync for Pair {}

impl fmt::Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pair({:?}, {} regions)", self.device, self.memories().len())
    }
}

impl Pair {
    /// One with room for `depth` work requests and `receives` immediate values, or as many as the
    /// device allows, in state INIT.
    pub fn new(device: &Arc<Device>, memories: Vec<Memory>, depth: u32, receives: u32) -> Result<Self, OpenError> {
        let most = u32::try_from(device.attributes.max_qp_wr).unwrap_or(0).max(1);
        let most_completions = u32::try_from(device.attributes.max_cqe).unwrap_or(0).max(1);
        let (depth, receives) = (depth.min(most).min(most_completions), receives.min(most).min(most_completions));
        let sent = Completions::new(device, depth)?;
        let received = Completions::new(device, receives)?;
        let mut wanted = sys::QueuePairInit {
            queue_context: null_mut(),
            send: sent.queue.as_ptr(),
            receive: received.queue.as_ptr(),
            shared: null_mut(),
            capacity: sys::Capacity {
                max_send_wr: depth,
                max_recv_wr: receives,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            kind: sys::RELIABLE_CONNECTED,
            signal_all: 0,
        };
        // SAFETY: the domain and the queues are those of this device, and live longer.
        let queue = made("a queue pair", unsafe { (device.library.create_qp)(device.domain.as_ptr(), &mut wanted) })?;
        let memories = Mutex::new(memories);
        let pair = Self { queue, sent, received, memories, depth, receives, device: Arc::clone(device) };
        let mut attributes = pair.attributes();
        attributes.state = sys::STATE_INIT;
        attributes.port = device.port_number;
        // What the other side may do, with memory that allows it too.
        let access = sys::ACCESS_REMOTE_WRITE | sys::ACCESS_REMOTE_READ | sys::ACCESS_REMOTE_ATOMIC;
        attributes.access = access.unsigned_abs();
        let mask = sys::SET_STATE | sys::SET_PKEY_INDEX | sys::SET_PORT | sys::SET_ACCESS;
        pair.modify("INIT", attributes, mask)?;
        for _ in 0..pair.receives {
            pair.post_receive().map_err(|error| refused("posting a receive", &error))?;
        }
        Ok(pair)
    }

    fn attributes(&self) -> sys::QueuePairAttributes {
        // SAFETY: numbers, for which zero is a value.
        unsafe { zeroed() }
    }

    fn modify(&self, to: &str, mut attributes: sys::QueuePairAttributes, mask: c_int) -> Result<(), OpenError> {
        // SAFETY: a queue pair that lives, and attributes of the library's layout, from which it
        // only reads.
        outcome(unsafe { (self.device.library.modify_qp)(self.queue.as_ptr(), &mut attributes, mask) })
            .map_err(|error| refused(&format!("moving the queue pair to {to}"), &error))
    }

    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        // SAFETY: the field does not change while the queue pair lives.
        unsafe { (*self.queue.as_ptr()).number }
    }

    /// How many work requests may be posted and not completed.
    pub fn depth(&self) -> usize {
        self.depth as usize
    }

    /// Connects with `other`: INIT, RTR, RTS. A packet that is not acknowledged within 4.096 µs
    /// times two to the `timeout` is sent again, six times; after that the work request completes
    /// with an error.
    pub fn connect(&self, other: &Other, sequence: u32, timeout: u8) -> Result<(), OpenError> {
        let atomics = self.device.attributes.max_qp_rd_atom.clamp(0, 1) as u8;
        let mut attributes = self.attributes();
        attributes.state = sys::STATE_READY_TO_RECEIVE;
        attributes.path_mtu = other.mtu.min(self.device.mtu());
        attributes.destination = other.number;
        attributes.receive_sequence = other.sequence;
        attributes.max_dest_rd_atomic = atomics;
        // 0.64 ms: who writes to a side that has not yet posted another receive waits so long
        // before it tries again.
        attributes.min_rnr_timer = 12;
        attributes.address = sys::AddressAttributes {
            gid: sys::Gid(other.gid),
            gid_index: self.device.gid_index,
            hop_limit: 64,
            lid: other.lid,
            is_global: u8::from(self.device.port.link_layer == sys::LINK_LAYER_ETHERNET),
            port: self.device.port_number,
            ..attributes.address
        };
        let mask = sys::SET_STATE
            | sys::SET_ADDRESS
            | sys::SET_PATH_MTU
            | sys::SET_DESTINATION
            | sys::SET_RECEIVE_SEQUENCE
            | sys::SET_MAX_DEST_RD_ATOMIC
            | sys::SET_MIN_RNR_TIMER;
        self.modify("RTR", attributes, mask)?;
        let mut attributes = self.attributes();
        attributes.state = sys::STATE_READY_TO_SEND;
        attributes.timeout = timeout;
        // Seven would mean for ever: a cut link would never be heard of.
        attributes.retry_count = RETRIES;
        // For ever: a listener that is slow is alive. Who posts gives up by its own clock.
        attributes.rnr_retry = 7;
        attributes.send_sequence = sequence;
        attributes.max_rd_atomic = atomics;
        let mask = sys::SET_STATE
            | sys::SET_TIMEOUT
            | sys::SET_RETRY_COUNT
            | sys::SET_RNR_RETRY
            | sys::SET_SEND_SEQUENCE
            | sys::SET_MAX_RD_ATOMIC;
        self.modify("RTS", attributes, mask)
    }

    /// Ends it: what is posted completes as flushed, and the other side can reach nothing here any
    /// more.
    pub fn end(&self) {
        let mut attributes = self.attributes();
        attributes.state = sys::STATE_ERROR;
        // A failure would mean that it is in that state, or that the device is gone.
        let _ = self.modify("ERR", attributes, sys::SET_STATE);
    }

    fn memories(&self) -> MutexGuard<'_, Vec<Memory>> {
        self.memories.lock().expect("no code panics under this mutex")
    }

    /// Lets the other side reach `memory` too; `false` when that would be more than `most` pieces.
    pub fn offer(&self, memory: Memory, most: usize) -> bool {
        let mut memories = self.memories();
        let room = memories.len() < most;
        memories.extend(room.then_some(memory));
        room
    }

    /// Ends it, and waits until the card has done with what was offered: nothing that the other
    /// side has sent lands there after this.
    pub fn take_back(&self) {
        self.end();
        // The queue pair's state says what becomes of packets from now on. What the card has begun
        // to write is through when it has given up the registration.
        self.memories().clear();
    }

    /// Posts `chain` with one call (Active-Memory, section 4.5.1): requests that all are between
    /// `memory` and the other side. The last one will complete, with the identity `last`;
    /// those before it have the numbers before that, and complete by themselves only if they fail.
    pub fn post(&self, last: u64, memory: &Memory, chain: &[Request]) -> io::Result<()> {
        let length = size_of_val(memory.region().words());
        let mut pieces = Vec::with_capacity(chain.len());
        for request in chain {
            let inside = request.at.checked_add(request.length).is_some_and(|end| end <= length);
            let (Ok(short), true) = (u32::try_from(request.length), inside) else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            pieces.push(sys::Piece {
                address: memory.address() + request.at as u64,
                length: short,
                key: memory.local_key(),
            });
        }
        let first = last + 1 - chain.len() as u64;
        let requests = chain.iter().zip(first..).map(|(request, id)| asked(request, id, id == last));
        let mut requests: Vec<_> = requests.collect();
        let mut next = null_mut();
        for (request, piece) in requests.iter_mut().zip(&mut pieces).rev() {
            (request.pieces, request.next) = (piece, next);
            next = request;
        }
        let mut bad = null_mut();
        // SAFETY: the queue pair lives, and the context in it is open.
        let post = unsafe { (*(*self.queue.as_ptr()).context).ops.post_send }.ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: the driver's function for this queue pair; it copies the requests, which lead
        // from the first to the last and then to null, and their pieces, which are all still
        // there. The card reaches the memory of a piece by its key alone, which is taken from it
        // before the memory goes away.
        outcome(unsafe { post(self.queue.as_ptr(), next, &mut bad) })
    }

    /// Makes room for one more immediate value.
    pub fn post_receive(&self) -> io::Result<()> {
        let mut request = sys::ReceiveRequest { id: 0, next: null_mut(), pieces: null_mut(), piece_count: 0 };
        let mut bad = null_mut();
        // SAFETY: the queue pair lives, and the context in it is open.
        let post = unsafe { (*(*self.queue.as_ptr()).context).ops.post_recv }.ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: the driver's function for this queue pair; it copies the request, which has no
        // memory.
        outcome(unsafe { post(self.queue.as_ptr(), &mut request, &mut bad) })
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // SAFETY: given back once, before the queues and the memory, which are dropped after this.
        // From here on the card touches neither.
        unsafe { (self.device.library.destroy_qp)(self.queue.as_ptr()) };
    }
}
