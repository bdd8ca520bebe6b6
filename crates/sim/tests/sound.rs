//! With the rules as they are nothing is violated, under any level, in any shape of a cluster.

mod common;

use common::sweep;
use freshet_sim::shapes::Group;

/// Runs the shapes of a group, each with this many seeds.
fn all_of(group: Group, test: &str, seeds: u64) {
    for scenario in group.shapes() {
        let report = sweep(&format!("sound {test}"), scenario, seeds);
        println!("{scenario:?}: {report:?}");
    }
}

#[test]
fn two_safe() {
    all_of(Group::TwoSafe, "two_safe", 80);
}

#[test]
fn quorum() {
    all_of(Group::Quorum, "quorum", 80);
}

#[test]
fn very_safe() {
    all_of(Group::VerySafe, "very_safe", 80);
}

#[test]
fn one_safe() {
    all_of(Group::OneSafe, "one_safe", 80);
}

#[test]
fn with_asynchronous_standbys() {
    all_of(Group::Asynchronous, "with_asynchronous_standbys", 60);
}

#[test]
fn with_cascaded_standbys() {
    all_of(Group::Cascaded, "with_cascaded_standbys", 60);
}

#[test]
fn one_sided() {
    all_of(Group::OneSided, "one_sided", 80);
}

#[test]
fn with_the_appliance_method() {
    all_of(Group::Appliance, "with_the_appliance_method", 80);
}

#[test]
fn with_force() {
    all_of(Group::Forced, "with_force", 60);
}
