//! A form of the log that needs no tables: its bytes, changed beyond recognition.

use std::{collections::VecDeque, thread::JoinHandle};

use freshet_base::{
    Stamp, Watermark,
    sync::{Arc, AtomicUsize, Condvar, Mutex, Ordering},
};
use freshet_log::{Block, BlockHeader};

use crate::forms::{Complete, Encode, Forms, Regenerate};

const MASK: u8 = 0x5A;

/// Encodes, but for some batches.
#[derive(Default)]
pub struct ToyForms {
    /// Every batch with a number that this divides stays as it is; none if it is zero.
    pub leaves: usize,
    /// Batches that were encoded.
    pub encoded: Arc<AtomicUsize>,
    /// Who asks for the form.
    pub asking: Arc<()>,
    /// Encoders that there are.
    pub encoders: Arc<AtomicUsize>,
}

struct ToyEncoder {
    leaves: usize,
    number: usize,
    encoded: Arc<AtomicUsize>,
    _asks: Arc<()>,
    encoders: Arc<AtomicUsize>,
}

impl Drop for ToyEncoder {
    fn drop(&mut self) {
        self.encoders.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Forms for ToyForms {
    fn encoder(&self) -> Box<dyn Encode> {
        self.encoders.fetch_add(1, Ordering::SeqCst);
        let (encoded, asks) = (Arc::clone(&self.encoded), Arc::clone(&self.asking));
        let encoders = Arc::clone(&self.encoders);
        Box::new(ToyEncoder { leaves: self.leaves, number: 0, encoded, _asks: asks, encoders })
    }

    fn ask(&self) -> Box<dyn Send> {
        Box::new(Arc::clone(&self.asking))
    }

    fn is_asked(&self) -> bool {
        Arc::strong_count(&self.asking) > 1
    }
}

impl Encode for ToyEncoder {
    fn encode(&mut self, from: Stamp, blocks: &[u8], into: &mut Vec<u8>) -> bool {
        assert!(Block::parse(blocks, from).is_ok(), "a batch begins with a block");
        self.number += 1;
        if self.leaves > 0 && self.number.is_multiple_of(self.leaves) {
            return false;
        }
        into.extend(blocks.iter().map(|byte| byte ^ MASK));
        self.encoded.fetch_add(1, Ordering::SeqCst);
        true
    }
}

#[derive(Default)]
struct State {
    /// Blocks up to here were taken in.
    at: u64,
    waiting: VecDeque<(u64, Vec<u8>)>,
    /// Nothing that ends beyond is completed.
    gate: Option<u64>,
    /// See [`Regenerate::ahead`]; none: as much as the log takes.
    ahead: Option<u64>,
    busy: bool,
    frozen: bool,
    stopped: bool,
    /// Blocks from here on are read from other nodes.
    lost: Option<u64>,
    originals: usize,
}

/// Regenerates, in a thread of its own.
#[derive(Default)]
pub struct Toy {
    state: Mutex<State>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Toy {
    pub fn gate(&self, gate: Option<u64>) {
        self.state.lock().unwrap().gate = gate;
        self.changed.notify_all();
    }

    /// No more than this is to arrive beyond what is complete.
    pub fn bound(&self, ahead: u64) {
        self.state.lock().unwrap().ahead = Some(ahead);
    }

    /// Nothing more is completed.
    pub fn freeze(&self) {
        self.state.lock().unwrap().frozen = true;
    }

    /// What begins at `from` or beyond cannot be regenerated.
    pub fn lose(&self, from: u64) {
        self.state.lock().unwrap().lost = Some(from);
    }

    pub fn originals(&self) -> usize {
        self.state.lock().unwrap().originals
    }

    /// Asks for a block until it comes; none when it is not wanted any more, or nowhere.
    fn original(&self, bytes: &[u8], complete: &dyn Complete) -> Option<Vec<u8>> {
        let header = BlockHeader::peek(bytes).unwrap();
        self.state.lock().unwrap().originals += 1;
        loop {
            match complete.original(&header) {
                Ok(bytes) => return Some(bytes),
                Err(missing) if missing.nowhere => {
                    complete.failed(missing.to_string());
                    return None;
                }
                Err(_) => std::thread::yield_now(),
            }
            let state = self.state.lock().unwrap();
            if state.stopped || header.stamp.0 >= state.at {
                return None;
            }
        }
    }

    fn run(&self, complete: &dyn Complete) {
        loop {
            let mut state = self.state.lock().unwrap();
            let (bytes, lost) = loop {
                if state.stopped {
                    return;
                }
                let ready =
                    |(at, bytes): &(u64, Vec<u8>)| state.gate.is_none_or(|gate| at + bytes.len() as u64 <= gate);
                if state.waiting.front().is_some_and(ready) && !state.frozen {
                    let (at, bytes) = state.waiting.pop_front().unwrap();
                    state.busy = true;
                    break (bytes, state.lost.is_some_and(|lost| at >= lost));
                }
                state = self.changed.wait(state).unwrap();
            };
            drop(state);
            let bytes = if lost { self.original(&bytes, complete) } else { Some(bytes) };
            if let Some(Err(why)) = bytes.map(|bytes| complete.append(&bytes)) {
                complete.failed(why);
            }
            self.state.lock().unwrap().busy = false;
            self.changed.notify_all();
        }
    }
}

/// So that the thread can have it.
pub struct Shared(pub Arc<Toy>);

impl Regenerate for Shared {
    fn begin(&self, at: Stamp, _: &Arc<Watermark>, complete: Arc<dyn Complete>) {
        self.0.state.lock().unwrap().at = at.0;
        let toy = Arc::clone(&self.0);
        *self.0.thread.lock().unwrap() = Some(std::thread::spawn(move || toy.run(&*complete)));
    }

    fn enter(&self, from: Stamp, to: Stamp, form: &[u8], members: &mut dyn FnMut(&[u8])) -> Result<(), String> {
        let bytes: Vec<u8> = form.iter().map(|byte| byte ^ MASK).collect();
        let mut at = from;
        let mut state = self.0.state.lock().unwrap();
        assert!(from.0 <= state.at, "batches follow one another");
        while at < to {
            let rest = &bytes[at.since(from) as usize..];
            let length = BlockHeader::peek(rest).map_err(|error| error.to_string())?.length as usize;
            if at.0 >= state.at {
                let block = Block::parse(&rest[..length], at).map_err(|error| error.to_string())?;
                block.members().into_iter().for_each(&mut *members);
                state.waiting.push_back((at.0, rest[..length].to_vec()));
            }
            at = at.plus(length as u64);
        }
        assert_eq!(at, to, "blocks end where the batch does");
        state.at = state.at.max(to.0);
        self.0.changed.notify_all();
        Ok(())
    }

    fn plain(&self, blocks: &[u8], into: &mut Vec<u8>) -> Result<(), String> {
        into.extend(blocks.iter().map(|byte| byte ^ MASK));
        Ok(())
    }

    fn ahead(&self) -> u64 {
        self.0.state.lock().unwrap().ahead.unwrap_or(u64::MAX)
    }

    fn cut(&self, at: Stamp) {
        let mut state = self.0.state.lock().unwrap();
        state.waiting.retain(|(begin, _)| *begin < at.0);
        state.at = state.at.min(at.0);
        while state.busy {
            state = self.0.changed.wait(state).unwrap();
        }
    }

    fn stop(&self) {
        self.0.state.lock().unwrap().stopped = true;
        self.0.changed.notify_all();
        if let Some(thread) = self.0.thread.lock().unwrap().take() {
            thread.join().unwrap();
        }
    }
}
