//! A driver that leaves out what a machine says, or does it behind what follows, is stopped by an
//! assertion, or found by seeds; where neither can be, it is said why.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};

use freshet_base::Safety;
use freshet_sim::{
    Property, Scenario, run,
    sabotage::{Effect, Sabotage},
};

/// How a driver that does otherwise is noticed.
#[derive(Debug)]
enum Noticed {
    /// It cannot continue, in each of these clusters.
    Asserted(Vec<Scenario>),
    /// In each of these clusters some seed violates this.
    Violates(Vec<Scenario>, &'static [Property]),
    /// No seed of this cluster shows anything: this is why.
    Harmless(Scenario, &'static str),
    /// Nothing follows it in one go.
    Alone,
    /// What is done is no part of a simulated cluster: this test has it.
    Elsewhere(&'static str),
}

use Noticed::{Alone, Asserted, Elsewhere, Harmless, Violates};
use Sabotage::{Dropped, Swapped};

const STOPS: &[Property] = &[Property::Progress];
const LOSES: &[Property] =
    &[Property::Progress, Property::Acknowledged, Property::InSync, Property::Logs, Property::Views];

fn noticed(sabotage: Sabotage) -> Noticed {
    let two_safe = Scenario::new(Safety::TwoSafe, 2);
    let quorum = Scenario::new(Safety::Quorum(2), 2);
    let relayed = Scenario { cascaded: 1, asynchronous: 1, ..quorum };
    let mirrored = Scenario { mirrors: 1, ..two_safe };
    let all_mirrors = Scenario { mirrors: 2, ..two_safe };
    match sabotage {
        Dropped(Effect::Promise | Effect::EndFeeds | Effect::Adopt) => Asserted(vec![quorum, all_mirrors]),
        Swapped(Effect::Promise | Effect::EndFeeds) => Asserted(vec![quorum, all_mirrors]),
        Dropped(Effect::Cut) | Swapped(Effect::Cut) => Violates(vec![quorum, all_mirrors], LOSES),
        Swapped(Effect::Adopt) => Alone,
        Dropped(Effect::EndTerm | Effect::TakeBack | Effect::Settle) => Asserted(vec![quorum]),
        Swapped(Effect::EndTerm | Effect::TakeBack) => Asserted(vec![quorum]),
        Swapped(Effect::Settle) => Alone,
        Dropped(Effect::Show) => Violates(vec![quorum], STOPS),
        Swapped(Effect::Show) => Harmless(relayed, "a relay's readers and those below do not see each other's views"),
        Dropped(Effect::PassDown) => Violates(vec![relayed], STOPS),
        Swapped(Effect::PassDown) => Harmless(relayed, "what is replayed then was passed on before"),
        Dropped(Effect::Replay) => Violates(vec![quorum], STOPS),
        Swapped(Effect::Replay) => Harmless(relayed, "room is given back below what is replayed, by another watermark"),
        Dropped(Effect::Release) => Elsewhere("a_relay_needs_no_room_for_what_is_globally_persistent"),
        Dropped(Effect::Places) => Elsewhere("commits_wait_for_the_leaf_when_the_relay_acknowledges_for_it"),
        Swapped(Effect::Release) => Harmless(relayed, "places are for people"),
        Swapped(Effect::Places) => Alone,
        Dropped(Effect::Commit) => Violates(vec![two_safe], STOPS),
        Swapped(Effect::Commit) => Harmless(two_safe, "reports are for people"),
        Dropped(Effect::Report) => Elsewhere("who_was_put_out_does_not_take_over_alone"),
        Swapped(Effect::Report) => Harmless(two_safe, "reports are for people"),
        Dropped(Effect::Record) => Violates(vec![two_safe], LOSES),
        Swapped(Effect::Record) => Alone,
        Dropped(Effect::Ask | Effect::Fetch | Effect::Finish | Effect::Stop) => Violates(vec![quorum], STOPS),
        Swapped(Effect::Ask | Effect::Fetch | Effect::Finish | Effect::Stop) => Alone,
        Dropped(Effect::Marked) => Violates(vec![mirrored], &[Property::Mirrors]),
        Dropped(Effect::Acknowledge | Effect::AskMirror) => {
            Harmless(mirrored, "the next note asks the mirror again, and it answers")
        }
        Swapped(Effect::Marked | Effect::Acknowledge | Effect::AskMirror) => Alone,
    }
}

/// The first seed that shows it, and how.
fn shown(scenario: Scenario, seeds: u64) -> Option<(u64, Result<Property, ()>)> {
    let first = common::seed().0;
    (first..first + seeds).find_map(|seed| match catch_unwind(AssertUnwindSafe(|| run(scenario, seed))) {
        Ok(Ok(_)) => None,
        Ok(Err(violation)) => Some((seed, Ok(violation.property))),
        Err(_) => Some((seed, Err(()))),
    })
}

#[test]
fn what_a_driver_gets_wrong_is_noticed() {
    for sabotage in Effect::all().flat_map(|effect| [Dropped(effect), Swapped(effect)]) {
        let with = |scenario: Scenario| Scenario { sabotage: Some(sabotage), ..scenario };
        match noticed(sabotage) {
            Asserted(scenarios) => {
                for scenario in scenarios {
                    let found = shown(with(scenario), 200);
                    assert!(matches!(found, Some((_, Err(())))), "{sabotage:?}: {scenario:?}: {found:?}");
                    println!("{sabotage:?}: stops, {found:?}");
                }
            }
            Violates(scenarios, properties) => {
                for scenario in scenarios {
                    let found = shown(with(scenario), 400);
                    let fits = |how: Result<_, _>| how.map_or(true, |property| properties.contains(&property));
                    assert!(found.is_some_and(|(_, how)| fits(how)), "{sabotage:?}: {scenario:?}: {found:?}");
                    println!("{sabotage:?}: {found:?}");
                }
            }
            Harmless(scenario, why) => {
                assert_eq!(shown(with(scenario), 50), None, "{sabotage:?}: {why}");
                println!("{sabotage:?}: {why}");
            }
            Alone => {}
            Elsewhere(test) => println!("{sabotage:?}: see {test}"),
        }
    }
}
