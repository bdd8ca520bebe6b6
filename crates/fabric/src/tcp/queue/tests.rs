//! Sides that do not keep to the protocol.

use std::thread;

use super::*;
use crate::{
    memory::{Registered, SharedMemory},
    tcp::{Listener, connect as call},
};

const PATIENCE: Duration = Duration::from_secs(20);
const BYTES: u64 = 4096;

/// A side that offers one region, and the stream of one that says what it likes.
fn beside_a_stranger() -> (Connected, Arc<SharedMemory>, Stream) {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let stranger = call(&listener.address().unwrap().to_string(), PATIENCE).unwrap();
    let ours = listener.accept().unwrap().unwrap();
    let region = Arc::new(SharedMemory::new(BYTES as usize, false).unwrap());
    let theirs = Offer { regions: vec![RegionKey { length: BYTES, access: Access::Tcp }], bell: crate::Bell::Tcp };
    let config = FabricConfig { patience: PATIENCE, ..FabricConfig::default() };
    let connected = super::connect(vec![Arc::clone(&region) as _], &theirs, ours, &config).unwrap();
    let (stream, ..) = stranger.into_parts();
    (connected, region, stream)
}

fn send(stream: &Stream, header: &Header, data: &[u8]) {
    let head = header.encode();
    stream.write_all(&mut [IoSlice::new(&head), IoSlice::new(data)], false).unwrap();
}

fn write(region: u16, offset: u64, length: u32) -> Header {
    Header { operation: Operation::Write, immediate: Some(1), fenced: false, region, length, offset }
}

#[test]
fn operations_outside_of_what_was_offered_end_the_connection() {
    let last = BYTES - 1;
    for header in [
        write(0, BYTES, 1),
        write(0, last, 2),
        write(0, u64::MAX, 1),
        write(0, u64::MAX - 7, u32::MAX),
        write(1, 0, 1),
        write(u16::MAX, 0, 0),
        Header { operation: Operation::Read, ..write(0, last, 2) },
        Header { operation: Operation::Read, ..write(0, 0, u32::MAX) },
        Header { operation: Operation::FetchAdd, ..write(0, 4, 8) },
        Header { operation: Operation::FetchAdd, ..write(0, last, 8) },
        Header { operation: Operation::FetchAdd, ..write(0, BYTES, 0) },
    ] {
        let (mut ours, region, stranger) = beside_a_stranger();
        send(&stranger, &header, &[0xFF; 64]);
        let outcome = ours.completions.next(PATIENCE);
        assert!(matches!(outcome, Err(ReceiveError::Violation { .. })), "{header:?}: {outcome:?}");
        assert!(region.words().iter().all(|word| word.load(Ordering::SeqCst) == 0), "{header:?}");
    }
}

#[test]
fn memory_that_was_registered_later_is_within_bounds_and_what_follows_it_is_not() {
    let (mut ours, _region, stranger) = beside_a_stranger();
    let more = Arc::new(SharedMemory::new(64, false).unwrap());
    ours.completions.register(Arc::clone(&more) as _).unwrap();
    send(&stranger, &write(1, 61, 3), b"end");
    assert_eq!(ours.completions.next(PATIENCE).unwrap(), Some(1));
    let mut found = [0; 3];
    words::load(more.words(), 61, &mut found);
    assert_eq!(&found, b"end");
    send(&stranger, &write(1, 62, 3), b"end");
    assert!(matches!(ours.completions.next(PATIENCE), Err(ReceiveError::Violation { .. })));
}

#[test]
fn no_list_completes_that_was_not_posted() {
    let (ours, _region, stranger) = beside_a_stranger();
    let Connected { mut queue, mut completions, .. } = ours;
    let place = Place { region: 0, offset: 0 };
    let token = queue.post(&[Write { to: place, pieces: &[b"x"], immediate: None, fenced: false }], true).unwrap();
    assert!(queue.completed().unwrap() < token);
    send(&stranger, &Header::alone(Operation::Completed, token.0 + 1), &[]);
    send(&stranger, &write(0, 0, 0), &[]);
    let receiving = thread::spawn(move || (completions.next(PATIENCE), completions));
    assert!(matches!(queue.wait(token), Err(SendError::Lost { .. })), "more has completed than was posted");
    assert!(matches!(queue.completed(), Err(SendError::Lost { .. })));
    assert_eq!(receiving.join().unwrap().0.unwrap(), Some(1));
}

#[test]
fn a_silent_side_is_not_waited_for_beyond_the_patience() {
    let (ours, _region, stranger) = beside_a_stranger();
    let Connected { mut queue, mut completions, .. } = ours;
    let token = queue.post(&[], true).unwrap();
    let (begun, ended) = std::sync::mpsc::channel();
    let waiting = thread::spawn(move || {
        begun.send(()).unwrap();
        queue.wait(token)
    });
    ended.recv().unwrap();
    // It hangs up instead.
    drop(stranger);
    assert!(completions.next(PATIENCE).is_err());
    assert!(matches!(waiting.join().unwrap(), Err(SendError::Lost { .. })));
}

#[test]
fn an_unknown_operation_is_refused() {
    let mut bytes = write(0, 0, 8).encode();
    bytes[4] = 7;
    let crc = crc32c::crc32c(&bytes[..28]);
    bytes[28..].copy_from_slice(&crc.to_le_bytes());
    assert!(Header::decode(&bytes).unwrap_err().contains("operation 7"));
    for operation in [Operation::Ask, Operation::Completed] {
        let header = Header::alone(operation, u64::MAX);
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }
}
