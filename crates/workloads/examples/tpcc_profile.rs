//! For profiling: TPC-C's mix in memory, without a log, one thread. It prints transactions per
//! second.
//!
//! `tpcc_profile [SECONDS [WAREHOUSES [si|serializable]]]`

use std::time::{Duration, Instant};

use freshet_engine::{Database, Isolation};
use freshet_workloads::{
    TableSet,
    procedure::read_only,
    random::Random,
    tpcc::{
        consistency::check,
        input::{Kind, Request, Terminal},
        load::load,
        population::{Population, Scale},
        run,
        tables::Tables,
        text::Constants,
    },
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let warehouses: u16 = arguments.next().map_or(Ok(1), |text| text.parse())?;
    let isolation: Isolation = arguments.next().map_or(Ok(Isolation::Snapshot), |text| text.parse())?;

    let database = Database::volatile(4);
    let tables = Tables::create(&database)?;
    let population = Population { scale: Scale::new(warehouses), seed: 1, loaded_at: 1_700_000_000_000_000 };
    let started = Instant::now();
    let _ = load(&database, &tables, &population, 1, &|_| {})?;
    println!("loaded {warehouses} warehouses in {:.1?}", started.elapsed());

    let worker = database.worker()?;
    let constants = Constants::of_run(population.constants(), &mut Random::new(2));
    let mut terminal = Terminal::new(&population, constants, 3, 0, 1);
    let started = Instant::now();
    let mut of_kind = [(0u32, Duration::ZERO); Kind::ALL.len()];
    let mut transactions = 0u64;
    let mut now = started;
    while now - started < Duration::from_secs(seconds) {
        let time = population.loaded_at + (now - started).as_micros() as u64;
        let request = Request { mark: None, input: terminal.next(time) };
        let _ = std::hint::black_box(run(&worker, &tables, isolation, &request)?);
        transactions += 1;
        let end = Instant::now();
        let (count, spent) = &mut of_kind[request.input.kind() as usize];
        *count += 1;
        *spent += end - now;
        now = end;
    }
    println!("{:.0} transactions/s", transactions as f64 / (now - started).as_secs_f64());
    for (kind, (count, spent)) in Kind::ALL.into_iter().zip(of_kind) {
        println!("{kind:>14} {count:>9} {:>7.2} us", spent.as_secs_f64() * 1e6 / f64::from(count.max(1)));
    }

    let started = Instant::now();
    let (verdicts, _) = read_only(&worker, |txn| check(txn, &tables))?;
    for verdict in &verdicts {
        println!("{verdict}");
    }
    println!("checked in {:.1?}", started.elapsed());
    if verdicts.iter().all(|verdict| verdict.ok) { Ok(()) } else { Err("the database is inconsistent".into()) }
}
