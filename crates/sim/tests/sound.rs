//! With the rules as they are nothing is violated, under any level, in any shape of a cluster.

mod common;

use common::{add, sweep};
use freshet_sim::{
    Report, Scenario,
    mirrors::{Dying, run_dying},
    shapes::Group,
};

/// Runs the shapes of a group, each with this many seeds.
fn all_of(group: Group, test: &str, seeds: u64) {
    for scenario in group.shapes() {
        let report = sweep(&format!("sound {test}"), scenario, seeds);
        println!("{scenario:?}: {report:?}");
    }
}

#[test]
fn two_safe() {
    all_of(Group::TwoSafe, "two_safe", 330);
}

#[test]
fn quorum() {
    all_of(Group::Quorum, "quorum", 330);
}

#[test]
fn very_safe() {
    all_of(Group::VerySafe, "very_safe", 330);
}

#[test]
fn one_safe() {
    all_of(Group::OneSafe, "one_safe", 330);
}

#[test]
fn with_asynchronous_standbys() {
    all_of(Group::Asynchronous, "with_asynchronous_standbys", 260);
}

#[test]
fn with_cascaded_standbys() {
    all_of(Group::Cascaded, "with_cascaded_standbys", 260);
}

#[test]
fn one_sided() {
    all_of(Group::OneSided, "one_sided", 330);
}

#[test]
fn with_the_appliance_method() {
    all_of(Group::Appliance, "with_the_appliance_method", 330);
}

#[test]
fn with_batches_in_another_form() {
    all_of(Group::Forms, "with_batches_in_another_form", 260);
}

#[test]
fn with_mirrors() {
    for scenario in Group::Mirrors.shapes() {
        let report = sweep("sound with_mirrors", scenario, 100);
        println!("{scenario:?}: {report:?}");
        // Unless it is one seed that was asked for: something was under way when primaries failed,
        // and everything was seen that mirrors do.
        let seen = [report.kept, report.undone, report.seeded, report.fetched, report.fuzzy_snapshots, report.larger];
        let least = seen.into_iter().min();
        assert!(report.leads < 200 || least > Some(20), "{scenario:?}: {report:?}");
    }
}

/// Table 1 of Active-Memory, and what is between its lines: at every write that lands, the primary
/// dies, one of the mirrors, two of these, or the node that is written to. That is also one that is
/// being filled, and one that takes over while the primary lives.
#[test]
fn they_die_at_every_write() {
    for scenario in Group::Mirrors.shapes().into_iter().filter(|scenario| scenario.synchronous == 2) {
        let scenario = Scenario { chaos: 8000, ..scenario };
        let dying =
            [Dying::Primary, Dying::Mirror, Dying::Both, Dying::BothForGood, Dying::Written, Dying::WrittenAndPrimary];
        for (who, seed) in dying.into_iter().flat_map(|who| [(who, 20_171), (who, 20_172)]) {
            let (mut write, mut total) = (0, Report::default());
            loop {
                write += 1;
                match run_dying(scenario, seed, write, who) {
                    Ok(Some(report)) => add(&mut total, &report),
                    Ok(None) => break,
                    Err(violation) => panic!("{scenario:?}, {who:?} at write {write} of seed {seed}: {violation}"),
                }
            }
            println!("{who:?}: {total:?}");
            assert!(write > 50 && total.fetched > 20 && total.seeded > 20, "{write} writes: {total:?}");
        }
    }
}

#[test]
fn with_force() {
    all_of(Group::Forced, "with_force", 260);
}

/// A seed is all that a run depends on.
#[test]
fn a_seed_repeats_itself() {
    for scenario in freshet_sim::shapes::all() {
        assert!(freshet_sim::trace(scenario, 7) == freshet_sim::trace(scenario, 7), "{scenario:?}");
    }
}
