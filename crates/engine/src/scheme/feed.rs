//! The feed of a standby that asks for inputs: batches of the log in the inputs form
//! ([`freshet_replay::form`]).
//!
//! A relay encodes its own log, which is the primary's. The form holds the keys of what is
//! inserted, and indexes are in the catalog, where a relay enters them by replay, behind what it
//! passes on. So what is inserted goes as bytes until replay has passed the last definition before
//! it: at first, all that the log held when the standby came. A primary's catalog is never behind
//! its log.
//!
//! Ahead of what is encoded both may be, for a standby that lags. The keys are of the indexes that
//! there were at the block's own LSN: the catalog keeps what was dropped until no snapshot sees
//! it, and behind that knows that something was. Then the block goes as bytes.
//!
//! So does what reads below the place where the standby has joined, or below the last definition
//! that was sent: a node that began there may not have what it sees.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use freshet_base::{Fid, Lsn};
use freshet_cluster::inputs::Sayable;
use freshet_log::{Block, BlockKind, block::BLOCK_HEADER};
use freshet_replay::form::{CatalogKeys, Encoded, Encoder, KeysOf};
use freshet_replication::forms::{Encode, Forms};
use freshet_storage::{Catalog, Participant, Participants};
use freshet_txn::{Core, InputsAsked, InputsDemand};

/// A batch without any inputs goes as bytes if it is at least this long.
const BULK: usize = 64 << 10;

/// Encodes for standbys, and has inputs recorded as long as one asks for them.
pub(crate) struct InputsFeed(Source);

/// What encoders need.
#[derive(Clone)]
struct Source {
    catalog: Arc<Catalog>,
    participants: Arc<Participants>,
    demand: InputsDemand,
    /// Of a relay: everything below this is replayed. The keys of what is inserted behind a
    /// definition can be told when that is in the catalog.
    replayed: Option<Arc<AtomicU64>>,
}

impl InputsFeed {
    /// Of a primary whose transactions are `core`'s.
    pub fn of_primary(core: &Core) -> Self {
        let (catalog, participants) = (Arc::clone(&core.catalog), Arc::clone(&core.participants));
        Self(Source { catalog, participants, demand: core.inputs_demand().clone(), replayed: None })
    }

    /// Of a relay with these tables, in which everything below `replayed` is.
    pub fn of_relay(catalog: &Arc<Catalog>, participants: &Arc<Participants>, replayed: &Arc<AtomicU64>) -> Self {
        let (catalog, participants) = (Arc::clone(catalog), Arc::clone(participants));
        Self(Source { catalog, participants, demand: InputsDemand::default(), replayed: Some(Arc::clone(replayed)) })
    }
}

impl Forms for InputsFeed {
    fn encoder(&self) -> Box<dyn Encode> {
        Box::new(InputsEncoder {
            _asked: self.0.demand.ask(),
            source: self.0.clone(),
            participant: None,
            encoder: Encoder::new(),
            sayable: None,
        })
    }

    fn ask(&self) -> Box<dyn Send> {
        Box::new(self.0.demand.ask())
    }

    fn is_asked(&self) -> bool {
        self.0.demand.is_asked()
    }
}

/// Encodes for one standby.
struct InputsEncoder {
    _asked: InputsAsked,
    source: Source,
    /// Made when it is needed.
    participant: Option<Participant>,
    encoder: Encoder,
    /// What it may say, once something was sent.
    sayable: Option<Sayable>,
}

/// The keys of rows, as long as the catalog knows all definitions before them.
struct KnownKeys<'g, 'p> {
    keys: CatalogKeys<'g, 'p>,
    knows: bool,
}

impl KeysOf for KnownKeys<'_, '_> {
    fn keys_of(&mut self, at: Lsn, fid: Fid, row: &[u8], each: &mut dyn FnMut(u16, &[u8])) -> bool {
        self.knows && self.keys.keys_of(at, fid, row, each)
    }
}

impl Encode for InputsEncoder {
    fn encode(&mut self, from: Lsn, blocks: &[u8], into: &mut Vec<u8>) -> bool {
        if self.participant.is_none() {
            // All places may be taken: then bytes will do.
            self.participant = self.source.participants.join().ok();
        }
        let Some(participant) = &self.participant else { return false };
        // Looked up before the catalog is.
        let replayed = self.source.replayed.as_ref().map_or(Lsn::MAX, |replayed| Lsn(replayed.load(SeqCst)));
        let mut sayable = self.sayable.unwrap_or(Sayable::new(from));
        let guard = participant.pin_without_snapshot();
        let keys = CatalogKeys::new(&self.source.catalog, &guard);
        let mut keys = KnownKeys { keys, knows: sayable.knows_keys(replayed) };
        let (mut at, mut any) = (from, false);
        self.encoder.batch();
        self.encoder.reads_from(sayable.reads_from().min(from));
        let mut rest = blocks;
        while rest.len() >= BLOCK_HEADER {
            // The node that receives damaged bytes says so.
            let Ok(block) = Block::parse(rest, at) else { return false };
            if block.header().kind == BlockKind::Schema {
                sayable.defines(block.header().end());
                keys.knows = sayable.knows_keys(replayed);
                self.encoder.reads_from(sayable.reads_from());
            }
            any |= self.encoder.block(&block, &mut keys, into) == Encoded::Inputs;
            rest = &rest[block.bytes().len()..];
            at = block.end();
        }
        self.sayable = Some(sayable);
        rest.is_empty() && (any || blocks.len() < BULK)
    }
}

#[cfg(test)]
mod tests {
    use freshet_base::{RecordKind, Rid, Term};
    use freshet_log::BlockBuilder;
    use freshet_replay::form::{Decoder, Form};

    use super::*;
    use crate::{Database, IndexDefinition, KeyPart, TableDefinition};

    #[test]
    fn the_last_encoder_of_a_term_that_is_over_takes_nothing_from_the_next() {
        let database = Database::volatile(8);
        let core = database.core();
        let (old, new) = (InputsFeed::of_primary(core), InputsFeed::of_primary(core));
        assert!(!core.records_inputs());
        let late = old.encoder();
        let present = new.encoder();
        drop((old, late));
        assert!(core.records_inputs(), "a standby of the present term asks for them");
        let below = new.ask();
        drop(present);
        assert!(new.is_asked() && core.records_inputs(), "another one does, below a relay");
        drop(below);
        assert!(!core.records_inputs());
        core.set_records_inputs(true);
        drop(new.encoder());
        assert!(core.records_inputs(), "they are recorded in any case");
        core.set_records_inputs(false);
        assert!(!core.records_inputs());
    }

    /// Three blocks: a transaction that inserts, a change of tables, a transaction that inserts.
    fn log(fid: Fid) -> Vec<u8> {
        let (mut builder, mut bytes) = (BlockBuilder::new(), Vec::new());
        for kind in [BlockKind::Redo, BlockKind::Schema, BlockKind::Redo] {
            let at = Lsn(bytes.len() as u64);
            let mut inputs = Vec::new();
            freshet_txn::Inputs { serial: false, snapshots: vec![at], body: b"input" }.encode(&mut inputs);
            builder.begin();
            builder.push(None, fid, Rid(at.0), RecordKind::Insert, &[7; 16]).unwrap();
            if kind == BlockKind::Redo {
                builder.push(None, Fid::INPUTS, Rid(0), RecordKind::Insert, &inputs).unwrap();
            }
            builder.seal_records();
            bytes.extend_from_slice(builder.finish(at, Term(1), kind));
        }
        bytes
    }

    #[test]
    fn a_relay_sends_keys_when_it_has_replayed_the_definitions_before() {
        let database = Database::volatile(8);
        let index = IndexDefinition::new("things_id", true, &[KeyPart::unsigned(0, 8)]);
        let table = database.create_table(&TableDefinition::new("things", vec![index])).unwrap();
        let core = database.core();
        let log = log(table.fid());
        let ends: Vec<u64> = (0..3)
            .scan(0, |at, _| {
                *at += u64::from(freshet_log::BlockHeader::peek(&log[*at as usize..]).unwrap().length);
                Some(*at)
            })
            .collect();
        let replayed = Arc::new(AtomicU64::new(0));
        let relay = InputsFeed::of_relay(&core.catalog, &core.participants, &replayed);
        let encoded = |encoder: &mut dyn Encode, from: u64| {
            let mut form = Vec::new();
            assert!(encoder.encode(Lsn(from), &log[from as usize..], &mut form));
            let mut decoder = Decoder::new(&form, Lsn(from));
            let mut inputs = Vec::new();
            while let Some(form) = decoder.next_form().unwrap() {
                inputs.push(matches!(form, Form::Inputs(_)));
            }
            inputs
        };
        let mut encoder = relay.encoder();
        assert_eq!(encoded(&mut *encoder, 0), [true, false, false]);
        replayed.store(ends[1] - 8, SeqCst);
        assert_eq!(encoded(&mut *encoder, 0), [false, false, false]);
        replayed.store(ends[1], SeqCst);
        assert_eq!(encoded(&mut *encoder, 0), [true, false, true]);
        // A standby that comes later: there may have been definitions before.
        let mut encoder = relay.encoder();
        assert_eq!(encoded(&mut *encoder, ends[1]), [true]);
        let mut encoder = relay.encoder();
        replayed.store(ends[1] - 8, SeqCst);
        assert_eq!(encoded(&mut *encoder, ends[1]), [false]);
        // A primary's catalog is ahead of its log.
        assert_eq!(encoded(&mut *InputsFeed::of_primary(core).encoder(), 0), [true, false, true]);
    }

    /// The numbers of the indexes of the insertion in the block at `at`, whose table is `fid`; none
    /// when its bytes come.
    fn indexes_of(encoder: &mut dyn Encode, at: Lsn, fid: Fid) -> Option<Vec<usize>> {
        let (mut builder, mut inputs, mut form) = (BlockBuilder::new(), Vec::new(), Vec::new());
        freshet_txn::Inputs { serial: false, snapshots: vec![at], body: b"input" }.encode(&mut inputs);
        builder.begin();
        builder.push(None, fid, Rid(at.0), RecordKind::Insert, &[7; 16]).unwrap();
        builder.push(None, Fid::INPUTS, Rid(0), RecordKind::Insert, &inputs).unwrap();
        builder.seal_records();
        assert!(encoder.encode(at, builder.finish(at, Term(1), BlockKind::Redo), &mut form));
        match Decoder::new(&form, at).next_form().unwrap().unwrap() {
            Form::Inputs(block) => Some(block.keys().map(|key| key.index).collect()),
            _ => None,
        }
    }

    #[test]
    fn keys_are_of_the_indexes_that_there_were_whatever_came_or_went_since() {
        let database = Database::volatile(8);
        let core = database.core();
        let index = |name: &str| IndexDefinition::new(name, name == "first", &[KeyPart::unsigned(0, 8)]);
        let definition = TableDefinition::new("things", vec![index("first"), index("second")]);
        let table = database.create_table(&definition).unwrap();
        let participant = core.participants.join().unwrap();
        let rid = Catalog::rid_of(table.fid()).unwrap();
        // As replay says it, or the primary's own commit.
        let alters = |states: &[freshet_storage::IndexState], at: u64| {
            let names = ["first", "second", "third"];
            let with =
                |(name, state): (&&str, &freshet_storage::IndexState)| IndexDefinition { state: *state, ..index(name) };
            let indexes = names.iter().zip(states).map(with).collect();
            let row = Catalog::row_of(&TableDefinition::new("things", indexes)).unwrap();
            let guard = participant.pin_without_snapshot();
            core.catalog.replay(&guard, RecordKind::Update, rid, &row, Lsn(at)).unwrap();
        };
        use freshet_storage::IndexState::{Building, Dropped, Ready};
        alters(&[Ready, Ready, Building], 1 << 30);
        alters(&[Ready, Dropped, Ready], 2 << 30);
        let feed = InputsFeed::of_primary(core);
        let indexes = |at: u64| indexes_of(&mut *feed.encoder(), Lsn(at), table.fid());
        let (before, between, behind) = ((1 << 30) - 4096, (2 << 30) - 4096, 2 << 30 | 4096);
        assert_eq!(indexes(before), Some(vec![0, 1]));
        assert_eq!(indexes(between), Some(vec![0, 1, 2]));
        assert_eq!(indexes(behind), Some(vec![0, 2]));
        // It is forgotten, and that it was there is not.
        core.catalog.clear_dropped(&participant.pin_without_snapshot(), Lsn::MAX);
        assert_eq!([before, between].map(indexes), [None, None], "their bytes come");
        assert_eq!(indexes(behind), Some(vec![0, 2]));
        // Nor is it after a restart from a checkpoint that says that some was dropped.
        let restarted = Database::volatile(8);
        let core = restarted.core();
        let indexes = [("first", Ready), ("second", Dropped), ("third", Building)];
        let indexes = indexes.map(|(name, state)| IndexDefinition { state, ..index(name) });
        let row = Catalog::row_of(&TableDefinition::new("things", indexes.into())).unwrap();
        let participant = core.participants.join().unwrap();
        core.catalog.enter_row(&participant.pin_without_snapshot(), rid, &row, Lsn(2 << 30)).unwrap();
        let feed = InputsFeed::of_primary(core);
        let indexes = |at: u64| indexes_of(&mut *feed.encoder(), Lsn(at), table.fid());
        assert_eq!([before, between].map(indexes), [None, None], "their bytes come");
        assert_eq!(indexes(behind), Some(vec![0, 2]));
    }

    #[test]
    fn what_reads_below_where_a_standby_has_joined_goes_as_bytes() {
        let database = Database::volatile(8);
        let index = IndexDefinition::new("things_id", true, &[KeyPart::unsigned(0, 8)]);
        let table = database.create_table(&TableDefinition::new("things", vec![index])).unwrap();
        let feed = InputsFeed::of_primary(database.core());
        let mut encoder = feed.encoder();
        let forms = |encoder: &mut dyn Encode, at: Lsn, snapshot: Lsn| {
            let (mut builder, mut inputs, mut form) = (BlockBuilder::new(), Vec::new(), Vec::new());
            freshet_txn::Inputs { serial: false, snapshots: vec![snapshot], body: b"input" }.encode(&mut inputs);
            builder.begin();
            builder.push(None, table.fid(), Rid(at.0), RecordKind::Insert, &[7; 16]).unwrap();
            builder.push(None, Fid::INPUTS, Rid(0), RecordKind::Insert, &inputs).unwrap();
            builder.seal_records();
            assert!(encoder.encode(at, builder.finish(at, Term(1), BlockKind::Redo), &mut form));
            matches!(Decoder::new(&form, at).next_form().unwrap(), Some(Form::Inputs(_)))
        };
        let joined = Lsn(4096);
        assert!(!forms(&mut *encoder, joined, Lsn(4088)));
        assert!(forms(&mut *encoder, joined.plus(1024), joined));
        assert!(!forms(&mut *encoder, joined.plus(2048), Lsn(4088)));
    }
}
