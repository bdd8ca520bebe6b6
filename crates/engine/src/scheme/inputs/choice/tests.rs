//! Situations that stay the same or change, and what is chosen in them, second by second.

use super::*;

const MB: f64 = 1e6;

/// A primary, a link and a standby. Rates are in bytes of log, or of the link, in a second.
#[derive(Clone, Copy)]
struct World {
    /// What the primary's clients would have it make.
    wanted: f64,
    link: f64,
    bytes_take: f64,
    inputs_take: f64,
    /// The share of transactions that were recorded.
    recorded: f64,
    /// What this node can execute again.
    executes: f64,
    /// The share of the processors that is idle while bytes come.
    idle: f64,
}

const WORLD: World = World {
    wanted: 20.0 * MB,
    link: 100.0 * MB,
    bytes_take: 1.0,
    inputs_take: 0.1,
    recorded: 1.0,
    executes: 60.0 * MB,
    idle: 0.6,
};
/// Bytes of log of a transaction.
const TRANSACTION: f64 = 1000.0;
/// Processor time of executing one.
const EXECUTE: Duration = Duration::from_micros(30);

impl World {
    fn narrow() -> Self {
        Self { link: 2.0 * MB, ..WORLD }
    }

    /// What happens in a while, when this form is asked for.
    fn pass(&self, encoding: Encoding, interval: Duration) -> Observation {
        let inputs = encoding == Encoding::Inputs;
        let takes = if inputs { self.inputs_take } else { self.bytes_take };
        let carries = self.link / takes;
        let executes = if inputs { self.executes } else { f64::INFINITY };
        let comes = self.wanted.min(carries).min(executes);
        let in_all = |rate: f64| (rate * interval.as_secs_f64()) as u64;
        let transactions = comes / TRANSACTION;
        let with_inputs = if inputs { transactions * self.recorded } else { 0.0 };
        let arrived = in_all(comes);
        Observation {
            interval,
            made: arrived,
            arrived,
            carried: in_all(comes * takes),
            link_busy: interval.mul_f64(comes * takes / self.link),
            held_here: if comes < self.wanted && executes < carries { arrived } else { 0 },
            with_inputs: in_all(with_inputs),
            as_bytes: in_all(transactions - with_inputs),
            executed: in_all(with_inputs),
            execute_cpu: EXECUTE.mul_f64(with_inputs * interval.as_secs_f64()),
            idle: Some(if inputs { self.idle * (1.0 - comes / self.executes) } else { self.idle }),
            processors: 2,
        }
    }
}

const SECOND: Duration = Duration::from_secs(1);

/// Lets this number of seconds pass; returns after which of them the choice changed, and to what.
fn run(choice: &mut Choice, world: World, seconds: u64) -> Vec<(u64, Encoding)> {
    let pass = |second| Some((second, choice.observe(&world.pass(choice.encoding(), SECOND))?));
    (1..=seconds).filter_map(pass).collect()
}

#[test]
fn what_does_not_change_leads_to_one_choice() {
    let hour = 3600;
    for (what, world, expected, at_most) in [
        ("a wide link", WORLD, Encoding::Bytes, 0),
        ("a narrow link", World::narrow(), Encoding::Inputs, 1),
        (
            "half of the transactions are recorded",
            World { inputs_take: 0.55, recorded: 0.5, ..World::narrow() },
            Encoding::Inputs,
            1,
        ),
        (
            "bytes are compressed to what suffices",
            World { link: 10.0 * MB, bytes_take: 0.3, ..WORLD },
            Encoding::Bytes,
            0,
        ),
        ("a narrow link, and no processor idle", World { idle: 0.05, ..World::narrow() }, Encoding::Bytes, 0),
        (
            "executing is slow, but faster than such a link",
            World { executes: 8.0 * MB, ..World::narrow() },
            Encoding::Inputs,
            1,
        ),
        ("nothing is written", World { wanted: 0.0, ..World::narrow() }, Encoding::Bytes, 0),
        // Trials of up to 30 s, behind pauses of 30 s, 60 s, and so on: 7 in an hour.
        ("inputs are as long as bytes", World { inputs_take: 0.95, ..World::narrow() }, Encoding::Bytes, 16),
        ("none are recorded", World { inputs_take: 1.0, recorded: 0.0, ..World::narrow() }, Encoding::Bytes, 16),
        ("executing is slower than the link", World { executes: 1.0 * MB, ..World::narrow() }, Encoding::Bytes, 16),
    ] {
        let mut choice = Choice::default();
        let changes = run(&mut choice, world, hour);
        println!("{what}: {} because {}; {changes:?}", choice.encoding(), choice.why());
        assert!(changes.len() <= at_most, "{what}: {changes:?}");
        let time_with = |encoding| {
            let (mut before, mut seconds) = ((0, Encoding::Bytes), 0);
            for change in changes.iter().copied().chain([(hour, Encoding::Bytes)]) {
                seconds += if before.1 == encoding { change.0 - before.0 } else { 0 };
                before = change;
            }
            seconds
        };
        assert!(time_with(expected) >= hour * 9 / 10, "{what}: {changes:?}");
    }
}

#[test]
fn a_full_link_beside_busy_processors_is_the_reason() {
    let (mut choice, busy) = (Choice::default(), World { idle: 0.05, ..World::narrow() });
    assert_eq!(run(&mut choice, busy, 4), []);
    assert_eq!(choice.why(), "the link was not full since the start");
    assert_eq!(run(&mut choice, busy, 1), []);
    let text = "the link is busy for 100 % of the time, but only 5 % of the processors are idle: too little for \
                executing transactions again";
    assert_eq!(choice.why(), text);
    // The load falls; then there are processors, too.
    assert_eq!(run(&mut choice, World { wanted: 0.5 * MB, ..busy }, 10), []);
    assert_eq!(choice.why(), "the link was not full since the start");
    assert_eq!(run(&mut choice, World::narrow(), 5), [(5, Encoding::Inputs)]);
    assert!(choice.why().contains("100 % of the time with"), "{}", choice.why());
}

#[test]
fn what_changes_is_followed() {
    let mut choice = Choice::default();
    assert_eq!(run(&mut choice, WORLD, 600), []);
    // The link becomes narrow, or more is written.
    assert_eq!(run(&mut choice, World::narrow(), 600), [(5, Encoding::Inputs)]);
    let text = "the link is busy for 100 % of the time with 2000000 bytes/s of log; how long inputs are is tried";
    assert_eq!(choice.why(), text);
    assert_eq!(choice.age(), Duration::from_secs(595));
    // A quarter of what the link would carry as bytes.
    let quiet = World { wanted: 0.5 * MB, ..World::narrow() };
    assert_eq!(run(&mut choice, quiet, 600), [(60, Encoding::Bytes)]);
    assert!(choice.why().contains("wide enough for bytes"), "{}", choice.why());
    // Inputs were worth it: no long pause.
    assert_eq!(run(&mut choice, World::narrow(), 60), [(5, Encoding::Inputs)]);
    // Nothing at all to send says the same as little.
    assert_eq!(run(&mut choice, World { wanted: 0.0, ..World::narrow() }, 600), [(60, Encoding::Bytes)]);
}

#[test]
fn it_does_not_go_to_and_fro() {
    // More than half of the link, and less than 70 % of it: each form stays.
    let between = World { wanted: 1.3 * MB, ..World::narrow() };
    let mut choice = Choice::default();
    assert_eq!(run(&mut choice, between, 3600), []);
    assert_eq!(run(&mut choice, World::narrow(), 10), [(5, Encoding::Inputs)]);
    assert_eq!(run(&mut choice, between, 3600), []);
    // Bursts that the link holds back, but not for long.
    let mut choice = Choice::default();
    for _ in 0..500 {
        assert_eq!(run(&mut choice, World::narrow(), 4), []);
        assert_eq!(run(&mut choice, WORLD, 6), []);
    }
}

#[test]
fn what_executing_cost_counts_before_it_begins_once_more() {
    let mut choice = Choice::default();
    run(&mut choice, World::narrow(), 60);
    assert_eq!(choice.figures().execute.map(|each| each.as_secs_f32()), Some(EXECUTE.as_secs_f32()));
    run(&mut choice, World { wanted: 0.0, ..World::narrow() }, 60);
    assert_eq!(choice.encoding(), Encoding::Bytes);
    // 40,000 transactions a second of 30 µs take 60 % of two processors.
    let many = World { wanted: 100.0 * MB, link: 40.0 * MB, ..WORLD };
    assert_eq!(run(&mut choice, World { idle: 0.55, ..many }, 600), []);
    assert_eq!(run(&mut choice, World { idle: 0.65, ..many }, 600)[0].1, Encoding::Inputs);
}

#[test]
fn how_often_it_looks_does_not_matter() {
    for (step, steps) in [(100, 6000), (500, 1200), (1000, 600), (2500, 240)] {
        let (mut choice, step) = (Choice::default(), Duration::from_millis(step));
        let world = World::narrow();
        let changed: Vec<_> =
            (1..=steps).filter(|_| choice.observe(&world.pass(choice.encoding(), step)).is_some()).collect();
        assert_eq!(changed.len(), 1, "{step:?}");
        assert!(step * changed[0] >= PERSISTS && step * changed[0] <= PERSISTS + step, "{step:?}: {changed:?}");
    }
}

#[test]
fn strange_figures_do_no_harm() {
    let mut choice = Choice::default();
    let all = u64::MAX;
    for seen in [
        Observation::default(),
        Observation { made: all, arrived: all, carried: all, link_busy: SECOND, ..Observation::default() },
        Observation { arrived: 1, carried: 0, idle: Some(f64::NAN), interval: SECOND, ..Observation::default() },
        Observation {
            executed: 1,
            execute_cpu: Duration::from_secs(1 << 40),
            interval: SECOND,
            ..Observation::default()
        },
    ] {
        for _ in 0..200 {
            choice.observe(&seen);
        }
    }
}
