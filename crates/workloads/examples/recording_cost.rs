//! What it costs a primary to record inputs: TPC-C's mix by one thread, which records and does not
//! in turn, and the processor time of that thread per transaction. The log is in files in $TMPDIR.
//!
//! `recording_cost [SECONDS [WAREHOUSES [si|serializable]]]`

use std::time::{Duration, Instant};

use freshet_base::cpu::thread_time;
use freshet_engine::{Database, Isolation, Node, NodeConfig, Safety, Worker};
use freshet_workloads::{
    TableSet,
    random::Random,
    tpcc::{
        input::{Request, Terminal},
        load::load,
        population::{Population, Scale},
        run,
        tables::Tables,
        text::Constants,
    },
};

/// How many transactions follow one another in the same way.
const TURN: u32 = 1000;

/// One way: what its turns have taken.
#[derive(Default)]
struct Way {
    /// Microseconds of each transaction, by turn.
    turns: Vec<f64>,
    log_bytes: u64,
}

impl Way {
    fn turn(
        &mut self,
        database: &Database,
        mut transaction: impl FnMut() -> Result<(), Box<dyn std::error::Error>>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let (begun, from) = (thread_time(), database.core().snapshots.current());
        for _ in 0..TURN {
            transaction()?;
        }
        self.turns.push((thread_time() - begun).as_secs_f64() * 1e6 / f64::from(TURN));
        self.log_bytes += database.core().snapshots.current().since(from);
        Ok(())
    }

    fn show(&mut self, name: &str) -> f64 {
        let count = self.turns.len() as f64;
        let bytes = self.log_bytes as f64 / (count * f64::from(TURN));
        let mean = self.turns.iter().sum::<f64>() / count;
        self.turns.sort_by(f64::total_cmp);
        let median = self.turns[self.turns.len() / 2];
        println!("{name:<14} {median:.3} us in the median turn, {mean:.3} us on average, {bytes:.1} bytes of log");
        median
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(Ok(10), |text| text.parse())?;
    let warehouses: u16 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let isolation: Isolation = arguments.next().map_or(Ok(Isolation::Snapshot), |text| text.parse())?;

    let directory = tempfile::tempdir()?;
    let listen = ([127, 0, 0, 1], 0).into();
    let mut config = NodeConfig {
        directory: directory.path().to_owned(),
        listen,
        safety: Safety::OneSafe,
        new_cluster: true,
        ..NodeConfig::default()
    };
    config.checkpoint.interval_s = 0;
    let node = Node::start(config, |_| {})?;
    let database = node.database();
    let tables = Tables::create(database)?;
    let population = Population { scale: Scale::new(warehouses), seed: 1, loaded_at: 1_700_000_000_000_000 };
    if let Some(ticket) = load(database, &tables, &population, 1, &|_| {})? {
        database.wait(ticket)?;
    }

    let worker: Worker = database.worker()?;
    let constants = Constants::of_run(population.constants(), &mut Random::new(2));
    let mut terminal = Terminal::new(&population, constants, 3, 0, 1);
    let started = Instant::now();
    let mut ways = [Way::default(), Way::default()];
    let mut round = 0;
    while started.elapsed() < Duration::from_secs(seconds) {
        for on in [round % 2 == 1, round % 2 == 0] {
            database.core().set_records_inputs(on);
            ways[usize::from(on)].turn(database, || {
                let time = population.loaded_at + started.elapsed().as_micros() as u64;
                let request = Request { mark: None, input: terminal.next(time) };
                let _ = std::hint::black_box(run(&worker, &tables, isolation, &request)?);
                Ok(())
            })?;
        }
        round += 1;
    }
    let [off, on] = [ways[0].show("not recorded"), ways[1].show("recorded")];
    println!("recording costs {:+.2} %", (on / off - 1.0) * 100.0);
    let recorded = database.core().recorded();
    let each = recorded.bytes as f64 / recorded.recorded.max(1) as f64;
    println!("{} recorded, {each:.1} bytes each; others: {:?}", recorded.recorded, recorded.kept);
    drop(worker);
    node.stop()?;
    Ok(())
}
