//! How busy a standby is, as a status word.

use crate::status::Load;

/// The places in a load's word, and the largest values there: processors, idle, link busy,
/// following. The uppermost bit says that it is one.
const LOAD: [(u32, u64); 4] = [(0, 0xFFF), (12, 1000), (22, 1000), (32, 0xF_FFFF)];
const LOAD_IS_KNOWN: u64 = 1 << 63;

pub(super) fn load_word(load: Option<Load>) -> u64 {
    let Some(Load { processors, idle, link_busy, following }) = load else { return 0 };
    let values = [processors, idle, link_busy, following].map(u64::from);
    LOAD.iter().zip(values).fold(LOAD_IS_KNOWN, |word, ((shift, most), value)| word | (value.min(*most) << shift))
}

pub(super) fn load_of_word(word: u64) -> Option<Load> {
    // Between two places there is room for the largest value of the lower one.
    let value = |(shift, most): (u32, u64)| {
        let mask = (most + 1).next_power_of_two() - 1;
        ((word >> shift) & mask).min(most) as u32
    };
    let [processors, idle, link_busy, following] = LOAD.map(value);
    (word & LOAD_IS_KNOWN != 0).then_some(Load { processors, idle, link_busy, following })
}

#[cfg(test)]
mod tests {
    use freshet_base::Lsn;
    use freshet_cluster::{Moment, follower::Ack};

    use super::*;
    use crate::wire::{Asks, Encoding, ack_of_words, ack_words};

    #[test]
    fn a_load_comes_back_and_is_none_without_one() {
        let ack = Ack {
            persisted: Lsn(1),
            may_send_until: Lsn(2),
            replayed: Lsn(3),
            visible: Lsn(4),
            observed: Some(Moment(5)),
        };
        for (own, in_doubt) in [(Encoding::Bytes, true), (Encoding::Inputs, false), (Encoding::Inputs, true)] {
            let asks = Asks { own, below: !in_doubt, in_doubt, equal_at: in_doubt.then_some(Lsn(5)) };
            assert_eq!(ack_of_words(ack_words(&ack, asks, None)).1, asks);
        }
        let asks = Asks::default();
        let back = |load| ack_of_words(ack_words(&ack, asks, load)).2;
        assert_eq!(back(None), None);
        let most = Load { processors: 0xFFF, idle: 1000, link_busy: 1000, following: 0xF_FFFF };
        for load in [
            Load::default(),
            Load { processors: 2, idle: 371, link_busy: 64, following: 1_210 },
            Load { idle: 1000, ..Load::default() },
            Load { link_busy: 1000, ..Load::default() },
            most,
        ] {
            assert_eq!(back(Some(load)), Some(load));
        }
        let more = Load { processors: u32::MAX, idle: 1001, link_busy: u32::MAX, following: u32::MAX };
        assert_eq!(back(Some(more)), Some(most));
        // Whatever comes is no more than that.
        let mut words = ack_words(&ack, asks, None);
        words[6] = u64::MAX;
        assert_eq!(ack_of_words(words).2, Some(most));
    }
}
