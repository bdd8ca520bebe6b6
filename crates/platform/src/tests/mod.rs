//! Schemes under load, against a serial execution and each other's copies.

use std::time::Duration;

use freshet_workloads::random::Random;

use crate::{
    Config, Failed, Scheme, Shape, Spread, Time, Workload,
    model::{compare, verify},
    node::Node,
    run::{come_to_rest, make, run},
    wire::Reader,
};

mod losing;

/// Numbers by chance, from a seed that is printed.
fn random() -> Random {
    use std::hash::{BuildHasher, RandomState};
    let seed = std::env::var("FRESHET_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(1));
    println!("FRESHET_SEED={seed}");
    Random::new(seed)
}

/// A small cluster, whose transactions meet.
fn config(scheme: Scheme, nodes: usize, copies: usize, seed: u64) -> Config {
    Config {
        scheme,
        shape: Shape { nodes, copies, records: 60 },
        workload: Workload { multi: 50, writers: 90, writes: 7, spread: Spread::Home },
        open: 5,
        gigabits: None,
        roles: false,
        check: true,
        seed,
    }
}

/// Steps nodes by chance until all have executed this many transactions.
fn drive(nodes: &mut [Node], random: &mut Random, count: u64) -> Result<(), Failed> {
    let mut steps = 0;
    while nodes.iter().any(|node| node.core.tally.executed < count) {
        let number = random.below(nodes.len() as u64) as usize;
        nodes[number].step()?;
        steps += 1;
        assert!(steps < 10_000_000, "some transaction does not end");
    }
    Ok(())
}

fn is_right(nodes: &[Node]) {
    compare(nodes).unwrap();
    let done: Vec<_> = nodes.iter().map(|node| &node.core.history.as_ref().unwrap().done[..]).collect();
    assert!(done.iter().flat_map(|done| done.iter()).all(|done| done.is_acknowledged));
    let histories: Vec<_> = done.iter().map(|done| (*done, None)).collect();
    verify(nodes, &histories).unwrap();
}

#[test]
fn every_copy_is_what_a_serial_execution_gives() {
    let mut random = random();
    for scheme in Scheme::ALL {
        for (nodes, copies) in [(1, 1), (2, 1), (2, 2), (3, 3), (5, 3)] {
            for spread in [Spread::Home, Spread::Cluster(0.0), Spread::Cluster(0.9)] {
                let mut config = config(scheme, nodes, copies, random.bits());
                config.workload.spread = spread;
                config.workload.multi = random.below(101) as u8;
                let mut nodes = make(&config).unwrap();
                drive(&mut nodes, &mut random, 60).unwrap();
                come_to_rest(&mut nodes).unwrap();
                println!("{config:?}");
                is_right(&nodes);
                let done = nodes.iter().map(|node| node.core.history.as_ref().unwrap().done.len()).sum::<usize>();
                assert!(done >= 60 * nodes.len(), "{done} were executed");
            }
        }
    }
}

#[test]
fn a_copy_that_differs_and_a_read_that_never_was_are_noticed() {
    let mut random = random();
    let mut nodes = make(&config(Scheme::LogShipping, 3, 2, 1)).unwrap();
    drive(&mut nodes, &mut random, 20).unwrap();
    come_to_rest(&mut nodes).unwrap();
    is_right(&nodes);
    let mut value = nodes[1].core.store.column(0, 7, 3);
    value[99] ^= 1;
    nodes[1].core.store.set_column(0, 7, 3, &value);
    assert!(compare(&nodes).is_err());
    value[99] ^= 1;
    nodes[1].core.store.set_column(0, 7, 3, &value);
    is_right(&nodes);
    let history = nodes[2].core.history.as_mut().unwrap();
    history.done[5].digest ^= 1;
    let done: Vec<_> = nodes.iter().map(|node| (&node.core.history.as_ref().unwrap().done[..], None)).collect();
    assert!(verify(&nodes, &done).is_err());
}

#[test]
fn threads_drive_every_scheme_over_a_slow_network_too() {
    let mut random = random();
    for scheme in Scheme::ALL {
        for (gigabits, writers) in [(None, 90), (Some(0.05), 90), (None, 0)] {
            let mut config = Config { gigabits, roles: true, ..config(scheme, 3, 3, random.bits()) };
            config.workload.writers = writers;
            // On a busy machine longer, until there is something to look at.
            let measured = [200, 2_000, 20_000].map(Duration::from_millis).into_iter().map(|measure| {
                let time = Time { warmup: Duration::from_millis(20), measure, threads: 2, lose: false };
                let found = run(&config, &time).unwrap();
                assert_eq!(found.wrong, None, "{config:?}");
                found
            });
            let found = measured.into_iter().find(|found| found.executed > 20).expect("there are transactions");
            assert!(found.wire_bytes > 0 && found.cpu > Duration::ZERO, "{found:?}");
            assert_eq!(found.latencies.len() as u64, found.executed);
            if gigabits.is_some() {
                // What flows in that time, a bucket for each node, and a debt of the last messages.
                let most = 3.0 * (0.05e9 / 8.0 * found.seconds + 300_000.0);
                assert!((found.wire_bytes as f64) < most, "{} bytes", found.wire_bytes);
            }
        }
    }
}

#[test]
fn bytes_for_a_transaction_are_ordered_as_in_table_3() {
    let mut random = random();
    let bytes = Scheme::ALL.map(|scheme| {
        let mut config = config(scheme, 5, 3, random.bits());
        config.shape.records = 2000;
        config.workload = Workload { multi: 0, writers: 100, writes: 10, spread: Spread::Home };
        let mut nodes = make(&config).unwrap();
        drive(&mut nodes, &mut random, 100).unwrap();
        come_to_rest(&mut nodes).unwrap();
        is_right(&nodes);
        let executed: u64 = nodes.iter().map(|node| node.core.tally.executed).sum();
        let links = nodes.iter().flat_map(|node| node.core.links.iter().flatten());
        links.map(|link| link.wire().bytes).sum::<u64>() / executed
    });
    let [memory, log, hstore, calvin] = bytes;
    // The paper's: 4.5 KB, 2.5 KB, 0.3 KB and 0.5 KB.
    assert!(hstore.max(calvin) < 700 && 700 < log && log < memory, "{bytes:?}");
    assert!((2000..3000).contains(&log) && (4000..5500).contains(&memory), "{bytes:?}");
}

#[test]
fn what_cannot_be_is_refused() {
    let usual = config(Scheme::Calvin, 3, 2, 1);
    let shape = |nodes, copies, records| Config { shape: Shape { nodes, copies, records }, ..usual };
    for wrong in [
        shape(0, 0, 60),
        shape(3, 4, 60),
        shape(3, 0, 60),
        shape(3, 2, 5),
        Config { open: 61, ..usual },
        Config { gigabits: Some(0.0), ..usual },
        Config { workload: Workload { writes: 11, ..usual.workload }, ..usual },
        Config { workload: Workload { spread: Spread::Cluster(1.0), ..usual.workload }, ..usual },
    ] {
        assert!(make(&wrong).is_err(), "{wrong:?}");
    }
    let time = Time { warmup: Duration::ZERO, measure: Duration::ZERO, threads: 1, lose: true };
    assert!(run(&usual, &time).is_err(), "Calvin does not recover here");
}

#[test]
fn messages_that_mean_nothing_do_no_harm() {
    let mut random = random();
    for scheme in Scheme::ALL {
        let mut nodes = make(&config(scheme, 3, 2, 1)).unwrap();
        let Node { core, scheme } = &mut nodes[0];
        core.may_begin = false;
        let mut refused = 0;
        for _ in 0..2000 {
            let length = random.below(60);
            let mut message: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
            if let Some(kind) = message.first_mut() {
                *kind %= 9;
            }
            refused += usize::from(scheme.handle(core, 1, Reader(&message)).is_err());
        }
        assert!(refused > 500, "{refused}");
    }
}
