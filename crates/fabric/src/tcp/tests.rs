use super::*;
use crate::frame::HEADER;

fn pair() -> (Connection, Connection) {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let address = listener.address().unwrap().to_string();
    let one = connect(&address, Duration::from_secs(5)).unwrap();
    (one, listener.accept().unwrap().unwrap())
}

#[test]
fn a_write_lands_in_the_region_with_its_immediate() {
    let (one, two) = pair();
    let (mut sender, _) = one.split();
    let (_, mut receiver) = two.split();
    let payload: Vec<u8> = (0..3_000_000u32).map(|k| (k * 7) as u8).collect();
    let expected = payload.clone();
    let writer = std::thread::spawn(move || {
        let (left, right) = payload.split_at(1_000_001);
        sender.send(1, Term(4), b"hello").unwrap();
        sender.write_with_imm(2, Term(4), 77, [left, right], b"imm").unwrap();
        sender.send(3, Term(4), b"").unwrap();
        sender.counters().read()
    });
    let header = receiver.receive().unwrap();
    assert_eq!((header.kind, header.term, receiver.immediate()), (1, Term(4), &b"hello"[..]));
    receiver.payload_done().unwrap();
    let header = receiver.receive().unwrap();
    assert_eq!((header.address, header.payload as usize, receiver.immediate()), (77, expected.len(), &b"imm"[..]));
    // The receiver's ring wraps elsewhere.
    let mut region = vec![0; expected.len()];
    let (left, right) = region.split_at_mut(17);
    receiver.payload_into(left).unwrap();
    receiver.payload_into(right).unwrap();
    receiver.payload_done().unwrap();
    assert!(region == expected);
    assert_eq!(receiver.receive().unwrap().kind, 3);
    let traffic = writer.join().unwrap();
    assert_eq!(traffic.sent_frames, 3);
    assert_eq!(traffic.sent_bytes, 3 * HEADER as u64 + 5 + 3 + expected.len() as u64);
    assert!(matches!(receiver.receive(), Err(ReceiveError::Closed { .. })));
}

#[test]
fn damage_is_noticed_wherever_it_strikes() {
    let whole = |payload: &[u8]| {
        let header = Header {
            kind: 1,
            term: Term(1),
            address: 0,
            immediate: 3,
            payload: payload.len() as u32,
            payload_crc: crc32c::crc32c(payload),
            immediate_crc: crc32c::crc32c(b"imm"),
        };
        [&header.encode()[..], b"imm", payload].concat()
    };
    let good = whole(b"some payload");
    for at in 0..good.len() {
        let (mut one, two) = pair();
        let mut bad = good.clone();
        bad[at] ^= 0x40;
        one.sender().stream.write_all(&mut [io::IoSlice::new(&bad)], false).unwrap();
        one.sender().stream.shut_down(Shutdown::Write);
        let (_, mut receiver) = two.split();
        let outcome = receiver.receive().and_then(|header| {
            let mut region = vec![0; header.payload as usize];
            receiver.payload_into(&mut region)?;
            receiver.payload_done()
        });
        assert!(
            matches!(outcome, Err(ReceiveError::Damaged { .. } | ReceiveError::Header { .. })),
            "byte {at}: {outcome:?}"
        );
    }
}

#[test]
fn a_truncated_frame_and_a_stranger_end_in_a_message() {
    let (mut one, two) = pair();
    one.sender()
        .stream
        .write_all(&mut [io::IoSlice::new(b"GET / HTTP/1.1\r\nHost: example\r\nAccept: */*\r\n\r\n")], false)
        .unwrap();
    let error = two.split().1.receive().unwrap_err().to_string();
    assert!(error.contains("not a Freshet node"), "{error}");
    let (mut one, two) = pair();
    one.sender().stream.write_all(&mut [io::IoSlice::new(b"FRSH")], false).unwrap();
    drop(one);
    assert!(matches!(two.split().1.receive(), Err(ReceiveError::Lost { .. })));
}

#[test]
fn another_thread_can_end_it() {
    let (one, two) = pair();
    let closer = one.closer();
    let (_, mut receiver) = one.split();
    let waiting = std::thread::spawn(move || receiver.receive());
    closer.close();
    assert!(waiting.join().unwrap().is_err());
    drop(two);
}

/// The peer does not answer: the listener's queue is full.
#[test]
fn another_thread_can_end_an_attempt_to_connect() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let at_once = Duration::from_millis(50);
    let _queued: Vec<_> = (0..3).map(|_| connect(&address, at_once)).collect();
    let late = connect(&address, at_once).unwrap_err().to_string();
    assert!(late.contains("timed out"), "{late}");
    let (sender, closers) = std::sync::mpsc::channel();
    let trying = move |closer| sender.send(closer).unwrap();
    let waiting = std::thread::spawn(move || connect_until(&address, Duration::from_secs(3600), trying).is_err());
    closers.recv().unwrap().close();
    assert!(waiting.join().unwrap());
}

#[test]
fn patience_ends() {
    let (mut one, mut two) = pair();
    one.set_patience(Some(Duration::from_millis(20))).unwrap();
    assert!(matches!(one.receiver().receive(), Err(ReceiveError::Silent { .. })));
    // Nobody reads: once the system's buffers are full, sending stalls.
    let big = vec![0; 1 << 20];
    let stalled = (0..1000).find_map(|_| one.sender().write_with_imm(1, Term(1), 0, [&big, &[]], b"").err());
    assert!(matches!(stalled, Some(SendError::Stalled { .. })), "{stalled:?}");
    assert!(two.receiver().receive().is_ok());
}

#[test]
fn a_closed_listener_lets_nobody_wait() {
    let listener = Listener::bind("127.0.0.1:0").unwrap();
    let closer = listener.closer();
    let waiting = std::thread::spawn(move || listener.accept().unwrap().is_none());
    closer.close();
    assert!(waiting.join().unwrap());
    let error = Listener::bind("256.1.1.1:1").unwrap_err().to_string();
    assert!(error.contains("cannot listen on 256.1.1.1:1"), "{error}");
}

/// A sender that drips bytes is given the whole patience for each of them, but no time beyond the
/// deadline.
#[test]
fn a_deadline_is_for_all_of_a_frame() {
    let (mut one, mut two) = pair();
    two.set_patience(Some(Duration::from_secs(3600))).unwrap();
    two.receiver().set_deadline(Some(Instant::now() + Duration::from_millis(50))).unwrap();
    let dripping = std::thread::spawn(move || {
        // A whole frame at this pace would take minutes.
        let head = Header {
            kind: 1,
            term: Term(1),
            address: 0,
            immediate: 100_000,
            payload: 0,
            payload_crc: 0,
            immediate_crc: 0,
        };
        one.sender().stream.write_all(&mut [io::IoSlice::new(&head.encode())], false).unwrap();
        while one.sender().stream.write_all(&mut [io::IoSlice::new(b"x")], false).is_ok() {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    assert!(matches!(two.receiver().receive(), Err(ReceiveError::Silent { .. })));
    drop(two);
    dripping.join().unwrap();
    // And without one again, patience is for each piece.
    let (mut one, mut two) = pair();
    two.receiver().set_deadline(Some(Instant::now())).unwrap();
    two.receiver().set_deadline(None).unwrap();
    one.sender().send(1, Term(1), b"").unwrap();
    assert!(two.receiver().receive().is_ok());
}
