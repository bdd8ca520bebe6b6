//! With the rules as they are nothing is violated, under any level, in any shape of a cluster.

mod common;

use common::sweep;
use freshet_base::Safety;
use freshet_cluster::relay::RelayAck;
use freshet_sim::Scenario;

#[test]
fn two_safe() {
    for synchronous in 1..=3 {
        for floor in 0..=synchronous as u32 {
            let scenario = Scenario { floor, ..Scenario::new(Safety::TwoSafe, synchronous) };
            let report = sweep("sound two_safe", scenario, 80);
            println!("{synchronous} standbys, floor {floor}: {report:?}");
        }
    }
}

#[test]
fn quorum() {
    for (synchronous, k) in [(1, 2), (2, 2), (3, 2), (3, 3), (4, 3)] {
        let report = sweep("sound quorum", Scenario::new(Safety::Quorum(k), synchronous), 80);
        println!("{synchronous} standbys, quorum {k}: {report:?}");
    }
}

#[test]
fn very_safe() {
    for synchronous in 1..=3 {
        let report = sweep("sound very_safe", Scenario::new(Safety::VerySafe, synchronous), 80);
        println!("{synchronous} standbys: {report:?}");
    }
}

#[test]
fn one_safe() {
    for synchronous in 1..=2 {
        let report = sweep("sound one_safe", Scenario::new(Safety::OneSafe, synchronous), 80);
        println!("{synchronous} standbys: {report:?}");
    }
}

#[test]
fn with_asynchronous_standbys() {
    let levels = [
        (Safety::TwoSafe, 0),
        (Safety::TwoSafe, 1),
        (Safety::VerySafe, 0),
        (Safety::Quorum(2), 0),
        (Safety::OneSafe, 0),
    ];
    for (safety, floor) in levels {
        let scenario = Scenario { asynchronous: 1, floor, ..Scenario::new(safety, 2) };
        let report = sweep("sound with_asynchronous_standbys", scenario, 60);
        println!("{safety}, floor {floor}: {report:?}");
    }
}

#[test]
fn with_cascaded_standbys() {
    for safety in [Safety::TwoSafe, Safety::VerySafe, Safety::Quorum(2), Safety::OneSafe] {
        for relay_ack in [RelayAck::Own, RelayAck::Downstream] {
            let scenario = Scenario { cascaded: 2, relay_ack, ..Scenario::new(safety, 1) };
            let report = sweep("sound with_cascaded_standbys", scenario, 60);
            println!("{safety}, {relay_ack:?}: {report:?}");
        }
    }
}

/// Primaries write into their standbys' memory, stand still, and continue after they were
/// succeeded.
#[test]
fn one_sided() {
    for (safety, synchronous) in
        [(Safety::TwoSafe, 2), (Safety::VerySafe, 1), (Safety::Quorum(2), 2), (Safety::OneSafe, 2)]
    {
        let scenario = Scenario { mapped: true, ..Scenario::new(safety, synchronous) };
        let report = sweep("sound one_sided", scenario, 80);
        println!("{safety}, {synchronous} standbys: {report:?}");
    }
}

/// What was read back counts at once.
#[test]
fn with_the_appliance_method() {
    for (safety, synchronous) in
        [(Safety::TwoSafe, 2), (Safety::VerySafe, 2), (Safety::Quorum(2), 2), (Safety::Quorum(2), 3)]
    {
        let scenario = Scenario { mapped: true, appliance: true, ..Scenario::new(safety, synchronous) };
        let report = sweep("sound with_the_appliance_method", scenario, 80);
        println!("{safety}, {synchronous} standbys: {report:?}");
    }
}

/// What was acknowledged may be lost, but logs do not mix, and everybody gets level.
#[test]
fn with_force() {
    for safety in [Safety::TwoSafe, Safety::VerySafe, Safety::Quorum(2)] {
        let scenario = Scenario { force: true, asynchronous: 1, ..Scenario::new(safety, 2) };
        let report = sweep("sound with_force", scenario, 60);
        println!("{safety}: {report:?}");
    }
}
