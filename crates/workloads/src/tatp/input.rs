//! What transactions are told.

use serde::{Deserialize, Serialize};

use super::digits;
use crate::{random::Random, row::Text};

/// The transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// Reads a subscriber.
    GetSubscriberData,
    /// Looks where a call goes.
    GetNewDestination,
    /// Reads an access info.
    GetAccessData,
    /// Changes a subscriber's bits and a facility's data.
    UpdateSubscriberData,
    /// Changes where a subscriber is.
    UpdateLocation,
    /// Adds a forwarding.
    InsertCallForwarding,
    /// Takes one away.
    DeleteCallForwarding,
}

impl Kind {
    /// All, with their shares of the mix in percent.
    pub const MIX: [(Self, u64); 7] = [
        (Self::GetSubscriberData, 35),
        (Self::GetNewDestination, 10),
        (Self::GetAccessData, 35),
        (Self::UpdateSubscriberData, 2),
        (Self::UpdateLocation, 14),
        (Self::InsertCallForwarding, 2),
        (Self::DeleteCallForwarding, 2),
    ];

    /// Whether it changes nothing.
    pub const fn is_read_only(self) -> bool {
        matches!(self, Self::GetSubscriberData | Self::GetNewDestination | Self::GetAccessData)
    }

    fn draw(random: &mut Random) -> Self {
        let mut left = random.below(100);
        for (kind, share) in Self::MIX {
            if left < share {
                return kind;
            }
            left -= share;
        }
        unreachable!("the shares make 100")
    }
}

/// Which transactions come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mix {
    /// All, as in the specification.
    #[default]
    Full,
    /// Update Location only.
    UpdateLocation,
}

freshet_base::named!(Mix, "mix", { Full: "full", UpdateLocation: "update-location" });

/// A transaction's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Which transaction.
    pub kind: Kind,
    /// The subscriber.
    pub subscriber: u32,
    /// The subscriber's number, for those that are told that.
    pub number: Text<15>,
    /// The type of facility or access, 1 to 4.
    pub facility: u8,
    /// 0, 8 or 16.
    pub start: u8,
    /// One to eight more.
    pub end: u8,
    /// A new location, bits and data in one.
    pub value: u32,
    /// Where calls go.
    pub destination: Text<15>,
}

/// Makes inputs.
#[derive(Clone, Debug)]
pub struct Client {
    subscribers: u32,
    mix: Mix,
    random: Random,
}

impl Client {
    /// Client number `client`, whose inputs depend on the seed and its number only.
    pub fn new(subscribers: u32, mix: Mix, seed: u64, client: u64) -> Self {
        Self { subscribers, mix, random: Random::stream(!seed, client) }
    }

    /// A subscriber, some more often than others: the specification's non-uniform distribution.
    fn subscriber(&mut self) -> u32 {
        let population = u64::from(self.subscribers);
        let a = match population {
            ..=1_000_000 => 65_535,
            1_000_001..=10_000_000 => 1_048_575,
            _ => 2_097_151,
        };
        let both = self.random.within(0, a) | self.random.within(1, population);
        (both % population + 1) as u32
    }

    /// The next input.
    pub fn next_input(&mut self) -> Input {
        let kind = match self.mix {
            Mix::Full => Kind::draw(&mut self.random),
            Mix::UpdateLocation => Kind::UpdateLocation,
        };
        let subscriber = self.subscriber();
        let random = &mut self.random;
        let start = random.below(3) as u8 * 8;
        Input {
            kind,
            subscriber,
            number: digits(subscriber),
            facility: random.within(1, 4) as u8,
            start,
            end: start + random.within(1, 8) as u8,
            value: random.bits() as u32,
            destination: digits(random.within(1, u64::from(self.subscribers)) as u32),
        }
    }
}
