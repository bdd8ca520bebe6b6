//! TATP (Neuvonen, Wolski, Manner, Raatikka: "Telecom Application Transaction Processing
//! Benchmark", 2009): a home location register with four tables and seven short transactions.
//!
//! In the distributed-logging paper, Update Location alone is the write-intensive run (section
//! 5.1).

mod input;
mod transactions;

pub use input::{Client, Input, Kind, Mix};
pub(crate) use transactions::transact;
pub use transactions::{Outcome, run};

pub use crate::batch::LoadError;
use crate::{
    engine::{Database, TableDefinition, Ticket},
    procedure::read_only,
    random::Random,
    row::{Row, Sorted, Text, layout},
    share::load_shares,
    table::{FindTable, NoTable, TableSet, Typed, definition, part},
};

layout! {
    /// A subscriber.
    Subscriber = "tatp_subscriber" {
        /// Its number, from 1.
        ID: Sorted<u32>,
        /// The number as 15 digits: the second key.
        NUMBER: Text<15>,
        /// Ten bits.
        BITS: u16,
        /// Ten hexadecimal digits.
        HEXES: u64,
        /// Ten bytes.
        BYTES: Text<10>,
        /// The switch that serves it.
        MSC_LOCATION: u32,
        /// Where it is.
        VLR_LOCATION: u32,
    }
}

layout! {
    /// How a subscriber may access.
    AccessInfo = "tatp_access_info" {
        /// The subscriber.
        S_ID: Sorted<u32>,
        /// 1 to 4.
        TYPE: u8,
        /// Anything.
        DATA1: u8,
        /// Anything.
        DATA2: u8,
        /// Three letters.
        DATA3: Text<3>,
        /// Five letters.
        DATA4: Text<5>,
    }
}

layout! {
    /// A facility of a subscriber.
    SpecialFacility = "tatp_special_facility" {
        /// The subscriber.
        S_ID: Sorted<u32>,
        /// 1 to 4.
        TYPE: u8,
        /// 0 or 1; 1 in 85 of 100.
        ACTIVE: u8,
        /// Anything.
        ERROR_CONTROL: u8,
        /// Anything.
        DATA_A: u8,
        /// Five letters.
        DATA_B: Text<5>,
    }
}

layout! {
    /// Where calls go in a part of the day.
    CallForwarding = "tatp_call_forwarding" {
        /// The subscriber.
        S_ID: Sorted<u32>,
        /// The facility.
        TYPE: u8,
        /// 0, 8 or 16 o'clock.
        START: u8,
        /// One to eight hours later.
        END: u8,
        /// Where to.
        NUMBER: Text<15>,
    }
}

/// Number of `subscriber`'s index by its number in digits.
pub(crate) const BY_NUMBER: usize = 1;

/// Handles on the tables. Cheap to clone.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is the table of its row's documentation")]
pub struct Tables {
    pub subscriber: Typed<Subscriber>,
    pub access_info: Typed<AccessInfo>,
    pub special_facility: Typed<SpecialFacility>,
    pub call_forwarding: Typed<CallForwarding>,
}

impl TableSet for Tables {
    fn definitions() -> Vec<TableDefinition> {
        let number = [part(Subscriber::NUMBER, Subscriber::NUMBER)];
        vec![
            definition::<Subscriber>(part(Subscriber::ID, Subscriber::ID), &[("number", &number)]),
            definition::<AccessInfo>(part(AccessInfo::S_ID, AccessInfo::TYPE), &[]),
            definition::<SpecialFacility>(part(SpecialFacility::S_ID, SpecialFacility::TYPE), &[]),
            definition::<CallForwarding>(part(CallForwarding::S_ID, CallForwarding::START), &[]),
        ]
    }

    fn open(database: &dyn FindTable) -> Result<Self, NoTable> {
        Ok(Self {
            subscriber: Typed::open(database)?,
            access_info: Typed::open(database)?,
            special_facility: Typed::open(database)?,
            call_forwarding: Typed::open(database)?,
        })
    }
}

/// A subscriber's number as its 15 digits.
pub(crate) fn digits(subscriber: u32) -> Text<15> {
    Text::new(format!("{subscriber:015}").as_bytes())
}

fn letters<const N: usize>(random: &mut Random) -> Text<N> {
    Text(std::array::from_fn(|_| b'A' + random.below(26) as u8))
}

/// Which of 1 to 4 a subscriber has: one to four of them, each choice as likely as any other.
fn some_types(random: &mut Random) -> Vec<u8> {
    let mut types = [1, 2, 3, 4];
    random.shuffle(&mut types);
    types[..random.within(1, 4) as usize].to_vec()
}

/// Loads `subscribers` subscribers and what belongs to them, by the specification's population
/// rules, with `threads` workers.
///
/// # Errors
/// See [`LoadError`].
pub fn load(
    database: &Database,
    tables: &Tables,
    subscribers: u32,
    seed: u64,
    threads: usize,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Option<Ticket>, LoadError> {
    let worker = database.worker()?;
    let first = read_only(&worker, |txn| Ok(tables.subscriber.find(txn, &1u32.to_be_bytes())?.is_some()))?.0;
    if first {
        return Err(LoadError::NotEmpty);
    }
    drop(worker);
    load_shares(database, 1..u64::from(subscribers) + 1, threads, progress, |batch, number| {
        let id = number as u32;
        // What a subscriber is like does not depend on who loads it.
        let random = &mut Random::stream(seed, number);
        let row = Row::new()
            .with(Subscriber::ID, id)
            .with(Subscriber::NUMBER, digits(id))
            .with(Subscriber::BITS, random.below(1 << 10) as u16)
            .with(Subscriber::HEXES, random.below(1 << 40))
            .with(Subscriber::BYTES, letters(random))
            .with(Subscriber::MSC_LOCATION, random.within(1, u64::from(u32::MAX)) as u32)
            .with(Subscriber::VLR_LOCATION, random.within(1, u64::from(u32::MAX)) as u32);
        batch.insert(&tables.subscriber, &row)?;
        for kind in some_types(random) {
            let row = Row::new()
                .with(AccessInfo::S_ID, id)
                .with(AccessInfo::TYPE, kind)
                .with(AccessInfo::DATA1, random.below(256) as u8)
                .with(AccessInfo::DATA2, random.below(256) as u8)
                .with(AccessInfo::DATA3, letters(random))
                .with(AccessInfo::DATA4, letters(random));
            batch.insert(&tables.access_info, &row)?;
        }
        for kind in some_types(random) {
            let row = Row::new()
                .with(SpecialFacility::S_ID, id)
                .with(SpecialFacility::TYPE, kind)
                .with(SpecialFacility::ACTIVE, u8::from(random.within(1, 100) <= 85))
                .with(SpecialFacility::ERROR_CONTROL, random.below(256) as u8)
                .with(SpecialFacility::DATA_A, random.below(256) as u8)
                .with(SpecialFacility::DATA_B, letters(random));
            batch.insert(&tables.special_facility, &row)?;
            let mut starts = [0, 8, 16];
            random.shuffle(&mut starts);
            for start in &starts[..random.below(4) as usize] {
                let row = Row::new()
                    .with(CallForwarding::S_ID, id)
                    .with(CallForwarding::TYPE, kind)
                    .with(CallForwarding::START, *start)
                    .with(CallForwarding::END, start + random.within(1, 8) as u8)
                    .with(CallForwarding::NUMBER, digits(random.within(1, u64::from(subscribers)) as u32));
                batch.insert(&tables.call_forwarding, &row)?;
            }
        }
        Ok(())
    })
}
