use proptest::prelude::*;

use super::*;

/// Hands out its bytes in pieces of the given sizes.
struct Trickle<'a> {
    bytes: &'a [u8],
    pieces: Vec<usize>,
}

impl Read for Trickle<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let piece = self.pieces.pop().unwrap_or(usize::MAX).max(1);
        let count = piece.min(self.bytes.len()).min(into.len());
        let (now, later) = self.bytes.split_at(count);
        into[..count].copy_from_slice(now);
        self.bytes = later;
        Ok(count)
    }
}

fn ask() -> impl Strategy<Value = Ask> {
    prop_oneof![
        any::<u32>().prop_map(|version| Ask::Hello { version }),
        Just(Ask::Status),
        Just(Ask::Watermarks),
        Just(Ask::Members),
        any::<u64>().prop_map(|for_s| Ask::Maintenance { for_s }),
        Just(Ask::Refill),
        any::<bool>().prop_map(|force| Ask::BeginAgain { force }),
        any::<(u64, u64)>().prop_map(|(from, batch_bytes)| Ask::Mix { from: Lsn(from), batch_bytes }),
        any::<bool>().prop_map(|consistent| Ask::Checkpoint { consistent }),
        prop_oneof![Just(Consent::Nothing), Just(Consent::PrimaryIsGone), Just(Consent::Loss)]
            .prop_map(|consent| Ask::Promote { consent }),
        any::<Option<String>>().prop_map(|to| Ask::SwitchOver { to }),
        Just(Ask::Rotate),
        Just(Ask::FinishUpgrade),
        any::<Option<String>>().prop_map(|node| Ask::Restart { node }),
        any::<u32>().prop_map(|k| Ask::ChangeLevel { level: Safety::Quorum(k.max(1)) }),
        (any::<Option<u64>>(), any::<u64>()).prop_map(|(at, deadline_ms)| Ask::Hash { at: at.map(Lsn), deadline_ms }),
        (any::<u64>(), any::<u64>()).prop_map(|(lsn, deadline_ms)| Ask::WaitVisible { lsn: Lsn(lsn), deadline_ms }),
    ]
}

fn requests() -> impl Strategy<Value = Vec<Request>> {
    prop::collection::vec((any::<u64>(), ask()).prop_map(|(id, ask)| Request { id, ask }), 0..8)
}

fn encoded(requests: &[Request]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for request in requests {
        encode(request, &mut bytes).unwrap();
    }
    bytes
}

/// Takes requests until the stream ends; there are never more than bytes.
fn take(bytes: &[u8], pieces: Vec<usize>) -> (Vec<Request>, FrameError) {
    let mut frames = Frames::new(Trickle { bytes, pieces });
    let mut taken = Vec::new();
    loop {
        match frames.next_frame() {
            Ok(request) => taken.push(request),
            Err(end) => return (taken, end),
        }
        assert!(taken.len() <= bytes.len());
    }
}

proptest! {
    #[test]
    fn requests_arrive_however_they_are_cut(requests in requests(), pieces in prop::collection::vec(0usize..40, 0..60)) {
        let (taken, end) = take(&encoded(&requests), pieces);
        prop_assert_eq!(taken, requests);
        prop_assert!(matches!(end, FrameError::Closed));
    }

    #[test]
    fn noise_is_an_error_and_nothing_else(bytes in prop::collection::vec(any::<u8>(), 1..400)) {
        let (taken, end) = take(&bytes, Vec::new());
        prop_assert!(!taken.is_empty() || !matches!(end, FrameError::Closed));
    }

    #[test]
    fn damage_never_harms_what_came_before(requests in requests(), at in any::<prop::sample::Index>(), flip in 1u8..) {
        let mut bytes = encoded(&requests);
        prop_assume!(!bytes.is_empty());
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let (taken, _) = take(&bytes, Vec::new());
        let mut before = Vec::new();
        let unharmed = requests.iter().take_while(|request| {
            encode(request, &mut before).unwrap();
            before.len() <= at
        }).count();
        prop_assert!(taken.len() >= unharmed);
        prop_assert_eq!(&taken[..unharmed], &requests[..unharmed]);
    }

    #[test]
    fn a_cut_is_noticed(requests in requests(), at in any::<prop::sample::Index>()) {
        let bytes = encoded(&requests);
        prop_assume!(!bytes.is_empty());
        let (taken, end) = take(&bytes[..at.index(bytes.len())], Vec::new());
        prop_assert!(taken.len() < requests.len());
        prop_assert!(matches!(end, FrameError::Closed | FrameError::Broken(_)));
    }
}

#[test]
fn frames_have_a_bound_both_ways() {
    let mut bytes = vec![1];
    let long = Response { id: 1, answer: Answer::Status("x".repeat(MAX_FRAME)) };
    assert!(matches!(encode(&long, &mut bytes), Err(FrameError::TooLong { .. })));
    assert_eq!(bytes, [1]);
    let (taken, end) = take(&u32::MAX.to_le_bytes(), Vec::new());
    assert!(taken.is_empty() && matches!(end, FrameError::TooLong { .. }));
    assert!(end.to_string().contains("exceeds the maximum"));
}

/// A frame that promises much and brings little costs little.
#[test]
fn memory_follows_what_arrived() {
    let mut bytes = (MAX_FRAME as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(&[0; 100]);
    let mut frames = Frames::new(&bytes[..]);
    assert!(frames.next_frame::<Request>().is_err());
    assert!(frames.buffer.capacity() < 4 * CHUNK);
}
