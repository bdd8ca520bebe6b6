//! With the rules as they are nothing is violated, under any level, in any shape of a cluster.

mod common;

use common::{add, sweep};
use freshet_base::Safety;
use freshet_sim::{Dying, Report, Scenario, run, shapes::Group};

/// How many seeds each shape gets, and one in which each node may be anything: two in five of all.
const SEEDS: u64 = 500;
const MIXED: u64 = 1000;

/// Clusters in which something was violated once: the number of the shape, as `freshet-lab simulate
/// --list` says it, and the seed.
const ONCE_FAILED: [(usize, u64); 21] = [
    (12, 8_102_035),
    (21, 8_105_601),
    (32, 8_107_269),
    (28, 8_110_494),
    (32, 8_111_412),
    (16, 8_112_174),
    (35, 8_200_257),
    (47, 8_203_404),
    (30, 8_209_440),
    (2, 8_300_473),
    (24, 8_405_364),
    (44, 8_501_367),
    (48, 8_503_701),
    (32, 8_505_919),
    (22, 8_506_783),
    (32, 8_507_780),
    (2, 8_600_146),
    (43, 8_602_446),
    (44, 8_710_497),
    (36, 9_000_584),
    (37, 9_000_844),
];

#[test]
fn what_once_failed_does_not_again() {
    let shapes = freshet_sim::shapes::all();
    for (shape, seed) in ONCE_FAILED {
        if let Err(violation) = run(shapes[shape], seed) {
            panic!("freshet-lab simulate --shape {shape} --first {seed} --seeds 1 --trace: {violation}");
        }
    }
}

/// Runs the shapes of a group.
fn all_of(group: Group, test: &str) -> Report {
    let mut total = Report::default();
    for scenario in group.shapes() {
        let report = sweep(&format!("sound {test}"), scenario, if group == Group::Mixed { MIXED } else { SEEDS });
        println!("{scenario:?}: {report:?}");
        add(&mut total, &report);
    }
    total
}

#[test]
fn two_safe() {
    let report = all_of(Group::TwoSafe, "two_safe");
    assert!(report.leads < 200 || report.gone > 0, "{report:?}");
}

#[test]
fn with_a_witness() {
    let report = all_of(Group::Witness, "with_a_witness");
    assert!(report.stood > 0 && report.failovers > 0 && report.disks > 0 && report.removed > 0, "{report:?}");
}

#[test]
fn unattended() {
    let report = all_of(Group::Unattended, "unattended");
    assert!(report.stood > 0 && report.failovers > 0 && report.stuck > 0, "{report:?}");
}

#[test]
fn quorum() {
    all_of(Group::Quorum, "quorum");
}

#[test]
fn very_safe() {
    all_of(Group::VerySafe, "very_safe");
}

#[test]
fn one_safe() {
    all_of(Group::OneSafe, "one_safe");
}

#[test]
fn with_asynchronous_standbys() {
    all_of(Group::Asynchronous, "with_asynchronous_standbys");
}

#[test]
fn with_cascaded_standbys() {
    all_of(Group::Cascaded, "with_cascaded_standbys");
}

#[test]
fn one_sided() {
    all_of(Group::OneSided, "one_sided");
}

#[test]
fn without_an_operator() {
    let report = all_of(Group::Automatic, "without_an_operator");
    assert!(report.stood > 0 && report.failovers > 0, "{report:?}");
    let switched = [report.switch_overs, report.handed_over];
    assert!(report.leads < 200 || switched.into_iter().min() > Some(20), "{report:?}");
    assert!(report.leads < 200 || report.maintenance > 0, "{report:?}");
}

/// How commits are counted changes while nodes come and go.
#[test]
fn majorities() {
    let report = all_of(Group::Majority, "majorities");
    assert!(report.leads < 200 || report.stood > 0 && report.failovers > 0 && report.removed > 20, "{report:?}");
    assert!(report.leads < 200 || report.levels > 50 && report.raised > 20, "{report:?}");
}

#[test]
fn with_the_appliance_method() {
    all_of(Group::Appliance, "with_the_appliance_method");
}

#[test]
fn with_inputs() {
    all_of(Group::Forms, "with_inputs");
}

/// Whether it is one seed that was asked for, or everything was seen that mirrors do: something was
/// under way when primaries failed, and was kept or undone.
fn all_seen(report: &Report) {
    let seen = [report.kept, report.undone, report.seeded, report.fetched, report.fuzzy_snapshots, report.larger];
    assert!(report.leads < 200 || seen.into_iter().min() > Some(20), "{report:?}");
}

#[test]
fn with_mirrors() {
    all_seen(&all_of(Group::Mirrors, "with_mirrors"));
}

#[test]
fn with_nodes_of_all_kinds() {
    let report = all_of(Group::Mixed, "with_nodes_of_all_kinds");
    all_seen(&report);
    let inputs = [report.executed, report.journaled, report.originals, report.checkpoints, report.definitions];
    assert!(report.leads < 200 || inputs.into_iter().min() > Some(1000), "{report:?}");
}

/// Table 1 of Active-Memory, and what is between its lines: at every write that lands the primary
/// dies, or the node that is written to, or both. That is also one that is being filled, and one
/// that takes over while the primary lives.
#[test]
fn they_die_at_every_write() {
    let [very_safe, beside] = [(Safety::VerySafe, 2), (Safety::TwoSafe, 1)]
        .map(|(safety, mirrors)| Scenario { mirrors, ..Scenario::new(safety, 2) });
    for scenario in Group::Mirrors.shapes().into_iter().chain([very_safe, beside]) {
        for (primary, written) in [(true, false), (false, true), (true, true)] {
            let (mut at, mut total) = (0, Report::default());
            loop {
                at += 1;
                let dying = Some(Dying { at, primary, written });
                match run(Scenario { chaos: 8000, dying, ..scenario }, 20_171) {
                    Ok(Report { died: 0, .. }) => break,
                    Ok(report) => add(&mut total, &report),
                    Err(violation) => panic!("{scenario:?}, {primary}, {written} at write {at}: {violation}"),
                }
            }
            println!("{primary}, {written}: {total:?}");
            // Beside a standby, that takes over when the mirror dies.
            let by_mirrors = total.by_mirrors > 20 || scenario.mirrors == 1;
            assert!(at > 50 && total.leads > at && by_mirrors, "{at} writes: {total:?}");
        }
    }
}

#[test]
fn with_force() {
    all_of(Group::Forced, "with_force");
}

#[test]
fn beside_each_other() {
    all_of(Group::Beside, "beside_each_other");
}

/// A seed is all that a run depends on.
#[test]
fn a_seed_repeats_itself() {
    for scenario in freshet_sim::shapes::all() {
        assert!(freshet_sim::trace(scenario, 7) == freshet_sim::trace(scenario, 7), "{scenario:?}");
    }
}
