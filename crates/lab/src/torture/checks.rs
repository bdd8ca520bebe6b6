//! What a history must satisfy. Pure: from what clients know and what nodes show in the end to what
//! is wrong.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use super::{
    history::{ACCOUNTS, BALANCE, Book, Deed, Final, Id, KEYS, Outcome, PER_CLIENT, PIECES, Read, Route, Write},
    serial, sessions,
};

/// Without leases a primary that was stopped or cut off does not know for a moment that another
/// leads. For so long after it was continued, or healed, it may show what is old; it may not
/// commit.
const UNAWARE: Duration = Duration::from_secs(5);

/// Violations of one kind that are shown.
const SHOWN: usize = 5;

/// What is wrong, by the check that found it.
pub(super) struct Verdicts {
    found: Vec<String>,
    counts: BTreeMap<&'static str, usize>,
}

impl Verdicts {
    pub(super) fn add(&mut self, check: &'static str, what: impl FnOnce() -> String) {
        let count = self.counts.entry(check).or_default();
        *count += 1;
        if *count <= SHOWN {
            self.found.push(format!("{check}: {}", what()));
        }
    }

    fn done(mut self) -> Vec<String> {
        for (check, count) in self.counts {
            if count > SHOWN {
                self.found.push(format!("{check}: {} more", count - SHOWN));
            }
        }
        self.found
    }
}

pub(super) fn seconds(time: Duration) -> String {
    format!("{:.3} s", time.as_secs_f64())
}

/// The node that a session has reached, and who serves it.
pub(super) fn place(node: usize, route: Route, names: &[String]) -> String {
    let by = if route == Route::Node { String::new() } else { format!(", route {},", route.name()) };
    format!("node {}{by}", names[node])
}

pub(super) fn describe(write: &Write, names: &[String]) -> String {
    format!(
        "transaction {} of client {} on {} from {} to {} ({:?}, {:?})",
        write.id,
        write.id / PER_CLIENT,
        place(write.node, write.route, names),
        seconds(write.begun),
        seconds(write.ended),
        write.outcome,
        write.effect
    )
}

/// Judges a history by what nodes show when all is quiet: one [`Final`] for each that shows any.
pub(super) fn check(book: &Book, finals: &[(usize, Final)], names: &[String]) -> Vec<String> {
    let mut verdicts = Verdicts { found: Vec::new(), counts: BTreeMap::new() };
    let by_id: HashMap<Id, &Write> = book.writes.iter().map(|write| (write.id, write)).collect();
    for (node, shown) in finals {
        outcomes(book, &by_id, shown, &names[*node], names, &mut verdicts);
        state(&by_id, shown, &names[*node], &mut verdicts);
    }
    for two in finals.windows(2) {
        let [(one, shown), (other, also_shown)] = two else { continue };
        if shown != also_shown {
            verdicts.add("nodes differ", || format!("{} and {} do not show the same rows", names[*one], names[*other]));
        }
    }
    if let Some((_, shown)) = finals.first() {
        let versions = versions(shown);
        seen(book, &by_id, &versions, names, &mut verdicts);
        acknowledged_versions(book, &versions, names, &mut verdicts);
        serial::check(book, shown, names, &mut verdicts);
    }
    lsns(book, names, &mut verdicts);
    fresh(book, names, &mut verdicts);
    sessions::check(book, names, &mut verdicts);
    verdicts.done()
}

/// What was acknowledged is there, what was refused is not, and nothing else is.
fn outcomes(
    book: &Book,
    by_id: &HashMap<Id, &Write>,
    shown: &Final,
    node: &str,
    names: &[String],
    verdicts: &mut Verdicts,
) {
    for write in &book.writes {
        let there = shown.journal.contains_key(&write.id);
        match write.outcome {
            Outcome::Committed(_) if !there => {
                verdicts.add("an acknowledged transaction is lost", || {
                    format!("{} is not on node {node}", describe(write, names))
                });
            }
            Outcome::Refused(_) if there => {
                verdicts.add("a refused transaction is committed", || {
                    format!("{} is on node {node}", describe(write, names))
                });
            }
            _ => {}
        }
    }
    for id in shown.journal.keys().filter(|id| !by_id.contains_key(id)) {
        verdicts.add("a transaction of nobody", || format!("{id} is on node {node}"));
    }
}

/// Registers, accounts and pieces are what the committed transactions have made of them.
fn state(by_id: &HashMap<Id, &Write>, shown: &Final, node: &str, verdicts: &mut Verdicts) {
    let mut registers: BTreeMap<i64, (i64, Id)> = (0..KEYS).map(|key| (key, (0, 0))).collect();
    let mut writers: BTreeMap<(i64, i64), Id> = BTreeMap::new();
    for (id, written) in &shown.journal {
        let Some((key, version)) = *written else { continue };
        if let Some(other) = writers.insert((key, version), *id) {
            verdicts.add("a lost update", || {
                format!("on node {node} both {other} and {id} have made version {version} of register {key}")
            });
        }
        let last = registers.entry(key).or_default();
        *last = (*last).max((version, *id));
    }
    for (key, (version, _)) in &registers {
        let missing = (1..=*version).find(|version| !writers.contains_key(&(*key, *version)));
        if let Some(missing) = missing {
            verdicts.add("a version is lost", || {
                format!("register {key} on node {node} is at version {version}, but no transaction has made {missing}")
            });
        }
    }
    let expected = registers.iter().map(|(key, (version, id))| (*key, *version, *id)).collect();
    if shown.registers != expected {
        verdicts.add("half a transaction", || {
            format!("on node {node} registers are {:?}, by the journal {expected:?}", shown.registers)
        });
    }
    let committed = || shown.journal.keys().filter_map(|id| by_id.get(id));
    let mut accounts: BTreeMap<i64, i64> = (0..ACCOUNTS).map(|account| (account, BALANCE)).collect();
    for (from, to, amount) in committed().filter_map(|write| write.effect.transfer) {
        *accounts.entry(from).or_default() -= amount;
        *accounts.entry(to).or_default() += amount;
    }
    if shown.accounts != accounts {
        verdicts.add("half a transaction", || {
            format!("on node {node} accounts are {:?}, by the journal {accounts:?}", shown.accounts)
        });
    }
    let hops: i64 = committed().map(|write| write.effect.hops).sum();
    let found: i64 = shown.pieces.values().sum();
    if shown.pieces.len() as i64 != PIECES || hops != found {
        verdicts.add("a moved row is lost", || {
            format!("on node {node} {:?} (piece, hops), which are {found} hops, by the journal {hops}", shown.pieces)
        });
    }
}

/// Who has made which version.
fn versions(shown: &Final) -> HashMap<(i64, i64), Id> {
    let mut versions: HashMap<(i64, i64), Id> = (0..KEYS).map(|key| ((key, 0), 0)).collect();
    versions.extend(shown.journal.iter().filter_map(|(id, written)| Some(((*written)?, *id))));
    versions
}

/// What a session has seen on any node is there for good; no session has seen a transaction without
/// those before it.
fn seen(
    book: &Book,
    by_id: &HashMap<Id, &Write>,
    versions: &HashMap<(i64, i64), Id>,
    names: &[String],
    verdicts: &mut Verdicts,
) {
    let mut of_client: BTreeMap<Id, BTreeMap<Id, &Write>> = BTreeMap::new();
    for (id, write) in by_id {
        of_client.entry(id / PER_CLIENT).or_default().insert(*id, write);
    }
    for read in &book.reads {
        let whence = || {
            let place = place(read.node, read.route, names);
            format!("on {place} from {} to {}", seconds(read.begun), seconds(read.ended))
        };
        for (key, version, id) in &read.registers {
            let writer = versions.get(&(*key, *version));
            if writer != Some(id) {
                verdicts.add("what was seen is lost", || {
                    let seen = whence();
                    format!("version {version} of register {key} by {id}, seen {seen}; in the end it is by {writer:?}")
                });
            }
        }
        let Some((from, ids)) = &read.journal else { continue };
        let Some(last) = ids.last() else { continue };
        for (id, write) in of_client.get(&(from / PER_CLIENT)).into_iter().flat_map(|all| all.range(from..=last)) {
            let there = ids.binary_search(id).is_ok();
            if !there && matches!(write.outcome, Outcome::Committed(_)) {
                verdicts.add("not a prefix", || {
                    format!(
                        "{last} was seen {} without what its client did before it, {}",
                        whence(),
                        describe(write, names)
                    )
                });
            }
            if there && matches!(write.outcome, Outcome::Refused(_)) {
                verdicts.add("a refused transaction was seen", || {
                    format!("{} was seen {}", describe(write, names), whence())
                });
            }
        }
    }
}

/// What a client was told that it has written is what it has written.
fn acknowledged_versions(book: &Book, versions: &HashMap<(i64, i64), Id>, names: &[String], verdicts: &mut Verdicts) {
    for write in &book.writes {
        let (Outcome::Committed(_), Some(register)) = (&write.outcome, write.effect.register) else { continue };
        let writer = versions.get(&register);
        if writer != Some(&write.id) {
            verdicts.add("an acknowledged transaction is lost", || {
                format!("its version is by {writer:?}: {}", describe(write, names))
            });
        }
    }
}

/// LSNs follow real time: what begins after something was acknowledged comes after it, whichever
/// nodes they are. With two primaries that both commit this fails, since neither knows of the
/// other's LSNs.
fn lsns(book: &Book, names: &[String], verdicts: &mut Verdicts) {
    let mut committed: Vec<(u64, &Write)> = Vec::new();
    for write in &book.writes {
        if let Outcome::Committed(lsn) = write.outcome {
            committed.push((lsn, write));
        }
    }
    let mut by_lsn = committed.clone();
    by_lsn.sort_by_key(|(lsn, _)| *lsn);
    for pair in by_lsn.windows(2) {
        if pair[0].0 == pair[1].0 {
            verdicts.add("two primaries", || {
                format!("the same LSN {}: {}; {}", pair[0].0, describe(pair[0].1, names), describe(pair[1].1, names))
            });
        }
    }
    let mut by_end = committed.clone();
    by_end.sort_by_key(|(_, write)| write.ended);
    committed.sort_by_key(|(_, write)| write.begun);
    let mut ended = by_end.into_iter().peekable();
    let mut largest: Option<(u64, &Write)> = None;
    for (lsn, write) in committed {
        while let Some(earlier) = ended.next_if(|(_, earlier)| earlier.ended < write.begun) {
            if largest.is_none_or(|largest| largest.0 < earlier.0) {
                largest = Some(earlier);
            }
        }
        if let Some((before, earlier)) = largest.filter(|largest| largest.0 >= lsn) {
            verdicts.add("two primaries", || {
                format!(
                    "LSN {lsn} of {} is below LSN {before} of {}, which was acknowledged before it began",
                    describe(write, names),
                    describe(earlier, names)
                )
            });
        }
    }
}

/// For each register, versions that were acknowledged by some time, or at some LSN.
struct Acknowledged {
    by_time: BTreeMap<i64, Vec<(Duration, i64)>>,
    by_lsn: BTreeMap<i64, Vec<(u64, i64)>>,
}

impl Acknowledged {
    fn of(book: &Book) -> Self {
        let mut all = Self { by_time: BTreeMap::new(), by_lsn: BTreeMap::new() };
        for write in &book.writes {
            let (Outcome::Committed(lsn), Some((key, version))) = (&write.outcome, write.effect.register) else {
                continue;
            };
            all.by_time.entry(key).or_default().push((write.ended, version));
            all.by_lsn.entry(key).or_default().push((*lsn, version));
        }
        all.by_time.values_mut().for_each(rising);
        all.by_lsn.values_mut().for_each(rising);
        all
    }

    /// The newest version of a register that was acknowledged before `time`.
    fn before(&self, key: i64, time: Duration) -> i64 {
        newest(self.by_time.get(&key), |at| *at < time)
    }

    /// The newest version of a register that is acknowledged and has this LSN at most.
    fn up_to(&self, key: i64, lsn: u64) -> i64 {
        newest(self.by_lsn.get(&key), |at| *at <= lsn)
    }
}

/// Sorts, and makes of each version the largest so far.
fn rising<T: Ord + Copy>(versions: &mut Vec<(T, i64)>) {
    versions.sort_unstable();
    let mut largest = 0;
    for (_, version) in versions {
        largest = largest.max(*version);
        *version = largest;
    }
}

fn newest<T>(versions: Option<&Vec<(T, i64)>>, is_before: impl Fn(&T) -> bool) -> i64 {
    let Some(versions) = versions else { return 0 };
    let count = versions.partition_point(|(at, _)| is_before(at));
    count.checked_sub(1).map_or(0, |last| versions[last].1)
}

/// A primary shows what was acknowledged, and writes come after what was acknowledged; a standby
/// that was asked for an LSN shows what has it.
fn fresh(book: &Book, names: &[String], verdicts: &mut Verdicts) {
    let acknowledged = Acknowledged::of(book);
    for write in &book.writes {
        let (Outcome::Committed(_), Some((key, version))) = (&write.outcome, write.effect.register) else { continue };
        let before = acknowledged.before(key, write.begun);
        if version <= before {
            verdicts.add("a lost update", || {
                format!("version {before} was acknowledged before it began: {}", describe(write, names))
            });
        }
    }
    for read in &book.reads {
        for &(key, version, _) in &read.registers {
            let stale = |what: &str, least: i64| {
                format!(
                    "{} showed version {version} of register {key} from {} to {}, {what} {least}",
                    place(read.node, read.route, names),
                    seconds(read.begun),
                    seconds(read.ended)
                )
            };
            let least = acknowledged.before(key, read.begun);
            if read.current && version < least && !is_unaware(book, read.node, read.begun) {
                verdicts.add("a stale read on a primary", || stale("after the acknowledgement of version", least));
            }
            if let Some(after) = read.after {
                let least = acknowledged.up_to(key, after);
                if version < least {
                    verdicts.add(of_after(read), || stale("though it was to have the LSN of version", least));
                }
            }
            let least = read.since.map_or(0, |since| acknowledged.before(key, since));
            if version < least {
                verdicts.add("a divided session begins in the past", || stale("having begun after version", least));
            }
        }
    }
}

/// What is wrong where a view has not the LSN that it should.
fn of_after(read: &Read) -> &'static str {
    if read.route == Route::Any { sessions::OWN } else { "read_after is not kept" }
}

/// Whether a node stood still or was cut off at this time, or had just been, and may not know what
/// that means.
fn is_unaware(book: &Book, node: usize, time: Duration) -> bool {
    if book.leases {
        return false;
    }
    let mut stopped: Option<Duration> = None;
    for (at, _, deed) in book.deeds.iter().filter(|(_, whose, _)| *whose == node) {
        if matches!(deed, Deed::Stopped | Deed::Cut) {
            stopped = stopped.or(Some(*at));
        }
        if matches!(deed, Deed::Continued | Deed::Healed)
            && stopped.take().is_some_and(|from| from <= time && time <= *at + UNAWARE)
        {
            return true;
        }
    }
    stopped.is_some_and(|from| from <= time)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::torture::history::{Effect, Register};

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn names() -> Vec<String> {
        ["a", "b"].map(str::to_owned).to_vec()
    }

    fn write(id: Id, node: usize, begun: u64, outcome: Outcome, effect: Effect) -> Write {
        Write { id, node, route: Route::Node, begun: at(begun), ended: at(begun + 5), outcome, effect }
    }

    fn register(key: i64, version: i64) -> Effect {
        Effect { register: Some((key, version)), ..Effect::default() }
    }

    fn read(node: usize, connection: u64, begun: u64, registers: &[Register]) -> Read {
        let (begun, ended) = (at(begun), at(begun + 2));
        Read { node, connection, begun, ended, registers: registers.to_vec(), ..Read::default() }
    }

    /// A history in which all is well, and what both nodes show then.
    fn well() -> (Book, Final) {
        let first = PER_CLIENT + 1;
        let mut book = Book::default();
        book.writes.push(write(first, 0, 10, Outcome::Committed(100), register(0, 1)));
        book.writes.push(write(first + 1, 0, 20, Outcome::Refused("40001".into()), Effect::default()));
        let transfer = Effect { transfer: Some((1, 2, 30)), ..Effect::default() };
        book.writes.push(write(first + 2, 0, 30, Outcome::Open("lost".into()), transfer));
        let hops = Effect { hops: 1, ..Effect::default() };
        book.writes.push(write(first + 3, 1, 40, Outcome::Committed(300), hops));
        book.writes.push(write(first + 4, 1, 50, Outcome::Committed(400), register(0, 2)));
        let mut current = read(1, 1, 60, &[(0, 2, first + 4)]);
        current.current = true;
        let mut asked = read(0, 2, 70, &[(0, 1, first)]);
        asked.after = Some(399);
        asked.journal = Some((first, vec![first, first + 2, first + 3]));
        book.reads.extend([read(0, 2, 5, &[(0, 0, 0)]), current, asked]);
        let mut shown = Final {
            journal: BTreeMap::from([
                (first, Some((0, 1))),
                (first + 2, None),
                (first + 3, None),
                (first + 4, Some((0, 2))),
            ]),
            registers: BTreeSet::from([(0, 2, first + 4)]),
            accounts: (0..ACCOUNTS).map(|account| (account, BALANCE)).collect(),
            pieces: (0..PIECES).map(|piece| (piece, i64::from(piece == 3))).collect(),
        };
        shown.registers.extend((1..KEYS).map(|key| (key, 0, 0)));
        shown.accounts.insert(1, BALANCE - 30);
        shown.accounts.insert(2, BALANCE + 30);
        (book, shown)
    }

    /// What the checks say when a history that is well is changed.
    fn judged(change: impl FnOnce(&mut Book, &mut [Final; 2])) -> Vec<String> {
        let (mut book, shown) = well();
        let mut finals = [shown.clone(), shown];
        change(&mut book, &mut finals);
        let finals: Vec<_> = finals.into_iter().enumerate().collect();
        check(&book, &finals, &names())
    }

    #[track_caller]
    fn assert_found(check: &str, change: impl FnOnce(&mut Book, &mut [Final; 2])) {
        let found = judged(change);
        assert!(found.iter().any(|violation| violation.starts_with(check)), "{check} was not found: {found:#?}");
    }

    #[test]
    fn a_history_in_which_all_is_well_passes() {
        assert_eq!(judged(|_, _| ()), Vec::<String>::new());
    }

    #[test]
    fn each_check_finds_what_it_is_for() {
        let first = PER_CLIENT + 1;
        assert_found("an acknowledged transaction is lost", |_, finals| {
            finals[1].journal.remove(&(first + 3));
        });
        assert_found("an acknowledged transaction is lost", |_, finals| {
            for shown in finals {
                shown.journal.insert(first + 4, Some((0, 3)));
            }
        });
        assert_found("a refused transaction is committed", |_, finals| {
            finals[0].journal.insert(first + 1, None);
        });
        assert_found("a transaction of nobody", |_, finals| {
            finals[0].journal.insert(77, None);
        });
        assert_found("nodes differ", |_, finals| {
            finals[1].accounts.insert(5, 1);
        });
        assert_found("half a transaction", |_, finals| {
            finals[0].accounts.insert(1, BALANCE);
        });
        assert_found("half a transaction", |_, finals| {
            finals[0].journal.remove(&(first + 2));
        });
        assert_found("half a transaction", |_, finals| {
            finals[0].registers.pop_last();
        });
        assert_found("a moved row is lost", |_, finals| {
            finals[0].pieces.remove(&1);
        });
        assert_found("a moved row is lost", |_, finals| {
            finals[0].pieces.insert(1, 1);
        });
        assert_found("a lost update", |_, finals| {
            finals[0].journal.insert(first + 2, Some((0, 2)));
        });
        assert_found("a version is lost", |_, finals| {
            finals[0].journal.insert(first, None);
        });
        assert_found("what was seen is lost", |book, _| book.reads.push(read(0, 9, 90, &[(0, 3, first + 2)])));
        assert_found("what was seen is lost", |book, _| book.reads.push(read(0, 9, 90, &[(0, 2, first + 2)])));
        assert_found("not a prefix", |book, _| book.reads[2].journal = Some((first, vec![first + 3])));
        assert_found("a refused transaction was seen", |book, _| {
            book.reads[2].journal = Some((first, vec![first, first + 1, first + 2, first + 3]));
        });
        assert_found("read_after is not kept", |book, _| book.reads[2].after = Some(400));
        assert_found("time runs backwards", |book, _| book.reads.push(read(0, 2, 80, &[(0, 0, 0)])));
        assert_found("time runs backwards", |book, _| {
            book.reads.push(Read { journal: Some((first, vec![first, first + 2])), ..read(0, 2, 80, &[]) });
        });
    }

    #[test]
    fn a_divided_session_sees_what_it_has_written_and_begins_with_what_there_is() {
        let first = PER_CLIENT + 1;
        let divided = |registers: &[Register]| Read { route: Route::Any, ..read(0, 3, 80, registers) };
        let well = judged(|book, _| {
            let seen = divided(&[(0, 2, first + 4)]);
            book.reads.push(Read { after: Some(400), since: Some(at(60)), ..seen });
            let journal = Some((first, vec![first, first + 2, first + 3]));
            book.reads.push(Read { own: Some(first + 3), journal, ..divided(&[]) });
        });
        assert_eq!(well, Vec::<String>::new());
        assert_found(sessions::OWN, |book, _| {
            book.reads.push(Read { after: Some(400), ..divided(&[(0, 1, first)]) });
        });
        assert_found(sessions::OWN, |book, _| {
            let journal = Some((first, vec![first, first + 2]));
            book.reads.push(Read { own: Some(first + 3), journal, ..divided(&[]) });
        });
        assert_found(sessions::OWN, |book, _| {
            book.reads.push(Read { own: Some(first + 3), journal: Some((first, vec![])), ..divided(&[]) });
        });
        assert_found("a divided session begins in the past", |book, _| {
            book.reads.push(Read { since: Some(at(60)), ..divided(&[(0, 1, first)]) });
        });
    }

    #[test]
    fn two_primaries_are_found() {
        assert_found("two primaries", |book, _| book.writes[3].outcome = Outcome::Committed(99));
        assert_found("two primaries", |book, _| book.writes[3].outcome = Outcome::Committed(400));
        assert_found("a lost update", |book, _| {
            book.writes.push(write(2 * PER_CLIENT, 0, 90, Outcome::Committed(500), register(0, 1)));
        });
        // Side by side they may have any order.
        let found = judged(|book, _| {
            book.writes[3].outcome = Outcome::Committed(401);
            book.writes[4].begun = book.writes[3].begun;
        });
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn only_a_primary_that_stood_still_may_show_what_is_old() {
        let stale = |book: &mut Book| {
            let mut old = read(0, 7, 80, &[(0, 1, PER_CLIENT + 1)]);
            old.current = true;
            book.reads.push(old);
        };
        assert_found("a stale read on a primary", |book, _| stale(book));
        let found = judged(|book, _| {
            stale(book);
            book.deeds.push((at(15), 0, Deed::Stopped));
            book.deeds.push((at(75), 0, Deed::Continued));
        });
        assert_eq!(found, Vec::<String>::new());
        assert_found("a stale read on a primary", |book, _| {
            stale(book);
            book.deeds.push((at(15), 1, Deed::Stopped));
            book.deeds.push((at(75), 1, Deed::Continued));
        });
    }
}
