//! Memory that is to be durable, and is written by the one who posts.

use super::*;
use crate::{
    memory::model::Lossy,
    tests::{DURABLE, FIRST, Link, THEN, beside, lists_are_durable_in_order},
};

#[test]
fn what_has_completed_is_durable_where_the_writer_flushes() {
    let (connection, _other) = beside(Link::Bare(FabricKind::Shm));
    let (stream, peer, _, counters) = connection.into_parts();
    let (lossy, bell) = (Arc::new(Lossy::default()), Arc::new(SharedMemory::new(bell::BYTES, false).unwrap()));
    let mut queue = ShmQueue {
        regions: vec![lossy.region(DURABLE)],
        landing: Landing::default(),
        bell: Arc::new(Bell::new(bell).unwrap()),
        peer,
        patience: Duration::from_secs(5),
        stream,
        passage: Arc::new(UnixStream::pair().unwrap().0),
        counters,
        posted: 0,
    };
    lists_are_durable_in_order(&lossy, |number| {
        let (first, then) = (vec![number; FIRST.len()], vec![number; THEN.len()]);
        let place = |range: std::ops::Range<usize>| Place { region: 0, offset: range.start as u64 };
        let list = [
            Write { to: place(FIRST), pieces: &[&first], immediate: None, fenced: false },
            Write { to: place(THEN), pieces: &[&then], immediate: None, fenced: true },
        ];
        let token = queue.post(&list, true).unwrap();
        // Both ways to hear of it.
        if number % 2 == 0 { assert_eq!(queue.completed().unwrap(), token) } else { queue.wait(token).unwrap() }
    });
}
