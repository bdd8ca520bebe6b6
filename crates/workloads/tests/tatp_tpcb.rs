//! TATP and TPC-B: loaded by their rules, run by several threads, and consistent afterwards.

use std::{collections::BTreeMap, ops::ControlFlow};

use freshet_engine::{Database, Direction, Isolation};
use freshet_workloads::{
    TableSet,
    procedure::read_only,
    tatp,
    tpcb::{self, Branch, Scale, Terminal},
};

#[test]
fn tpcb_stays_consistent_and_a_wrong_balance_is_noticed() {
    let database = Database::volatile(8);
    let tables = tpcb::Tables::create(&database).unwrap();
    let scale = Scale { branches: 3, accounts: 500 };
    let _ = tpcb::load(&database, &tables, scale, 2, &|_| {}).unwrap();
    assert!(tpcb::load(&database, &tables, scale, 2, &|_| {}).is_err(), "not twice");
    std::thread::scope(|scope| {
        for number in 0..3 {
            let (database, tables) = (&database, &tables);
            scope.spawn(move || {
                let worker = database.worker().unwrap();
                let mut terminal = Terminal::new(scale, 42, number);
                for _ in 0..700 {
                    let _ = tpcb::run(&worker, tables, Isolation::Serializable, &terminal.next_input()).unwrap();
                }
            });
        }
    });
    let worker = database.worker().unwrap();
    let check = || read_only(&worker, |txn| tpcb::check(txn, &tables)).unwrap().0;
    assert_eq!(check(), (Vec::new(), 2100));
    let _ = worker
        .execute(Isolation::Snapshot, |txn| {
            let branch = tables.branch.need(txn, &2u32.to_be_bytes(), "it is there")?;
            let balance = branch.row.get(Branch::BALANCE) + 1;
            tables.branch.update(txn, branch.rid, &branch.row.to_row().with(Branch::BALANCE, balance))
        })
        .unwrap();
    let (wrong, _) = check();
    assert_eq!(wrong.len(), 3, "{wrong:?}");
    assert!(wrong[0].starts_with("branch 2 has"), "{wrong:?}");
}

#[test]
fn tpcb_takes_accounts_of_other_branches_in_15_of_100() {
    let scale = Scale { branches: 4, accounts: 1000 };
    let mut terminal = Terminal::new(scale, 1, 0);
    let mut remote = 0;
    for _ in 0..20_000 {
        let input = terminal.next_input();
        let (home, branch) = ((input.teller - 1) / tpcb::TELLERS, (input.account - 1) / scale.accounts);
        assert!(home < 4 && branch < 4);
        remote += u32::from(u64::from(home) != branch);
    }
    assert!((2800..3200).contains(&remote), "{remote}");
}

#[test]
fn tatp_is_populated_by_its_rules() {
    let database = Database::volatile(8);
    let tables = tatp::Tables::create(&database).unwrap();
    let _ = tatp::load(&database, &tables, 2000, 7, 2, &|_| {}).unwrap();
    let worker = database.worker().unwrap();
    let txn = worker.begin_read_only();
    let (mut subscribers, mut accesses, mut facilities, mut forwardings, mut active) = (0, 0, 0, 0, 0);
    tables.subscriber.scan_all(&txn, |_| subscribers += 1).unwrap();
    tables.access_info.scan_all(&txn, |_| accesses += 1).unwrap();
    tables
        .special_facility
        .scan_all(&txn, |found| {
            facilities += 1;
            active += u32::from(found.row.get(tatp::SpecialFacility::ACTIVE));
        })
        .unwrap();
    tables
        .call_forwarding
        .scan_all(&txn, |found| {
            forwardings += 1;
            let (start, end) = (found.row.get(tatp::CallForwarding::START), found.row.get(tatp::CallForwarding::END));
            assert!(start % 8 == 0 && start <= 16 && (start + 1..=start + 8).contains(&end));
        })
        .unwrap();
    assert_eq!(subscribers, 2000);
    // 2.5 of each on average; 1.5 forwardings for each facility; 85 of 100 are active.
    assert!((4800..5200).contains(&accesses) && (4800..5200).contains(&facilities), "{accesses} {facilities}");
    assert!((facilities * 14 / 10..facilities * 16 / 10).contains(&forwardings), "{forwardings}");
    assert!((facilities * 82 / 100..facilities * 88 / 100).contains(&active), "{active}");
    drop(txn);
}

#[test]
fn tatp_runs_its_mix() {
    let database = Database::volatile(8);
    let tables = tatp::Tables::create(&database).unwrap();
    let _ = tatp::load(&database, &tables, 1000, 7, 1, &|_| {}).unwrap();
    let counts: Vec<BTreeMap<(tatp::Kind, bool), u32>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..2)
            .map(|number| {
                let (database, tables) = (&database, &tables);
                scope.spawn(move || {
                    let worker = database.worker().unwrap();
                    let mut client = tatp::Client::new(1000, tatp::Mix::Full, 3, number);
                    let mut counts = BTreeMap::new();
                    for _ in 0..10_000 {
                        let input = client.next_input();
                        assert!((1..=1000).contains(&input.subscriber));
                        let (outcome, _) = tatp::run(&worker, tables, Isolation::Serializable, &input).unwrap();
                        *counts.entry((input.kind, outcome == tatp::Outcome::Done)).or_default() += 1;
                    }
                    counts
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let count = |kind, done| counts.iter().map(|counts| counts.get(&(kind, done)).copied().unwrap_or(0)).sum::<u32>();
    for (kind, share) in tatp::Kind::MIX {
        let all = count(kind, true) + count(kind, false);
        let expected = 200 * share as u32;
        assert!(all.abs_diff(expected) < expected / 5 + 60, "{kind:?}: {all}, {share} % expected");
    }
    assert_eq!(count(tatp::Kind::GetSubscriberData, false) + count(tatp::Kind::UpdateLocation, false), 0);
    // By the population's rules 62.5 % of the accesses and facilities that are asked for are there.
    let there = count(tatp::Kind::GetAccessData, true);
    assert!((4000..4800).contains(&there), "{there}");
    // What was inserted and deleted is still one record for each key, found by an ordered scan.
    let worker = database.worker().unwrap();
    let txn = worker.begin_read_only();
    let mut last = Vec::new();
    let all = (std::ops::Bound::Unbounded, std::ops::Bound::Unbounded);
    let table = database.table("tatp_call_forwarding").unwrap();
    txn.scan(&table, 0, all, Direction::Forward, |key, _| {
        assert!(last.as_slice() < key);
        last = key.to_vec();
        ControlFlow::Continue(())
    })
    .unwrap();
}
