//! Command logging: what a standby executes again is the state of its primary.

mod common;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use common::{NOW, assert_consistent, read, seed};
use freshet_engine::{
    Apply, Domain, Isolation, Lsn, Node, NodeConfig, ProcedureError, Safety, StateHash, Ticket, executors,
    node::LinkStatus, node::RoleStatus,
};
use freshet_workloads::{
    TableSet,
    journal::Mark,
    random::Random,
    tpcc::{
        command::{Commands, run_as_command},
        input::{Request, Terminal},
        load::load,
        population::{Population, Scale},
        tables::Tables,
        text::Constants,
    },
};

const SCALE: Scale = Scale { warehouses: 3, items: 400, customers: 60, undelivered: 18 };

fn config() -> NodeConfig {
    NodeConfig {
        domain: Domain::None,
        listen: ([127, 0, 0, 1], 0).into(),
        safety: Safety::OneSafe,
        new_cluster: true,
        failover: freshet_engine::Failover::Manual,
        ..NodeConfig::default()
    }
}

fn standby_of(primary: &Node, apply: Apply, threads: usize) -> Arc<Node> {
    let join = Some(primary.address().to_owned());
    let config = NodeConfig { join, apply, replay_threads: threads, ..config() };
    Node::start_executing(config, Some(executors(Commands::default)), |_| {}).unwrap()
}

fn hash(node: &Node, at: Option<Lsn>) -> StateHash {
    if let Some(at) = at {
        node.wait_visible(at, Some(Instant::now() + Duration::from_secs(120))).unwrap();
    }
    read(node.database(), |txn| Ok(StateHash::of(txn)?))
}

/// Each thread is at home in a warehouse of its own. Returns the last ticket.
fn drive(node: &Node, tables: &Tables, population: &Population, isolation: Isolation, at_home: bool) -> Ticket {
    let constants = Constants::of_run(population.constants(), &mut Random::new(population.seed));
    let run = |number: u64| {
        let terminal = Terminal::new(population, constants, population.seed, number, (number % 3) as u16 + 1);
        let mut terminal = if at_home { terminal.at_home() } else { terminal };
        let worker = node.database().worker().unwrap();
        let mut last = None;
        for sequence in 0..600 {
            let mark = Some(Mark { client: number, sequence });
            let request = Request { mark, input: terminal.next(NOW + sequence) };
            let ticket = loop {
                match run_as_command(&worker, tables, isolation, &request) {
                    Ok((_, ticket)) => break ticket,
                    // On a busy machine the others may be stopped for longer than the engine tries.
                    Err(ProcedureError::Exhausted { .. }) => std::thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            };
            last = Some(ticket);
        }
        last.unwrap()
    };
    let run = &run;
    let threads: Vec<Ticket> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|number| scope.spawn(move || run(number))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    threads.into_iter().max_by_key(|ticket| ticket.until).unwrap()
}

#[test]
fn a_standby_that_executes_commands_has_the_state_of_its_primary() {
    // One thread executes what is serializable, whatever it touches; several, what keeps to its
    // warehouse.
    for (threads, isolation, at_home) in
        [(1, Isolation::Serializable, false), (1, Isolation::Snapshot, true), (2, Isolation::Snapshot, true)]
    {
        let primary = Node::start(config(), |_| {}).unwrap();
        let standby = standby_of(&primary, Apply::Command, threads);
        let tables = Tables::create(primary.database()).unwrap();
        let population = Population { scale: SCALE, seed: seed(), loaded_at: NOW };
        let loaded = load(primary.database(), &tables, &population, 2, &|_| {}).unwrap().unwrap();
        primary.database().wait(loaded).unwrap();
        let at_first = hash(&primary, None);
        assert_eq!(hash(&standby, Some(at_first.at)).hash, at_first.hash);
        let last = drive(&primary, &tables, &population, isolation, at_home);
        primary.database().wait(last).unwrap();
        let theirs = hash(&primary, None);
        let ours = hash(&standby, Some(theirs.at));
        assert_eq!((ours.hash, ours.records), (theirs.hash, theirs.records), "{threads} threads, {isolation}");
        assert_ne!(theirs.hash, at_first.hash);
        assert_consistent(standby.database(), &Tables::open(standby.database()).unwrap());
        // 1800 transactions, of which 92 of 100 write: their records would take several KiB each.
        let logged = theirs.at.since(at_first.at);
        assert!(logged < 1800 * 400, "{logged} bytes of commands");
        standby.stop().unwrap();
        primary.stop().unwrap();
    }
}

#[test]
fn a_node_that_does_not_execute_commands_refuses_their_log() {
    let directory = tempfile::tempdir().unwrap();
    let on_disk = || NodeConfig { directory: directory.path().to_owned(), domain: Domain::File, ..config() };
    let primary = Node::start(on_disk(), |_| {}).unwrap();
    let standby = standby_of(&primary, Apply::Fresh, 1);
    let tables = Tables::create(primary.database()).unwrap();
    let population = Population { scale: SCALE, seed: seed(), loaded_at: NOW };
    let _ = load(primary.database(), &tables, &population, 1, &|_| {}).unwrap();
    let last = drive(&primary, &tables, &population, Isolation::Snapshot, true);
    primary.database().wait(last).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let RoleStatus::Standby { own, .. } = standby.status().role else { panic!("it is a standby") };
        if let LinkStatus::Failed { why } = own.link {
            assert!(why.contains("apply = \"command\""), "{why}");
            break;
        }
        assert!(Instant::now() < deadline, "{:?}", own.link);
        std::thread::sleep(Duration::from_millis(10));
    }
    standby.stop().unwrap();
    primary.stop().unwrap();
    drop(primary);
    let refused = Node::start(on_disk(), |_| {}).unwrap_err().to_string();
    assert!(refused.contains("no node can restart from it"), "{refused}");
}
