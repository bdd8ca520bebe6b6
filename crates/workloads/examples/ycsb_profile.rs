//! For profiling: YCSB's 70/30 mix in memory, without a log, one thread. It prints transactions per
//! second.
//!
//! `ycsb_profile [SECONDS [RECORDS [THETA [MIX [si|serializable]]]]]`

use std::time::{Duration, Instant};

use freshet_engine::{Database, Isolation};
use freshet_workloads::{
    TableSet,
    ycsb::{
        Population, Scratch, Tables,
        input::{Client, NewKeys, Request, Workload},
        load,
        mix::Mix,
        run,
    },
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(Ok(5), |text| text.parse())?;
    let records: u64 = arguments.next().map_or(Ok(1_000_000), |text| text.parse())?;
    let theta: f64 = arguments.next().map_or(Ok(0.0), |text| text.parse())?;
    let mix: Mix = arguments.next().map_or(Ok(Mix::SeventyThirty), |text| text.parse())?;
    let isolation: Isolation = arguments.next().map_or(Ok(Isolation::Snapshot), |text| text.parse())?;

    let database = Database::volatile(4);
    let tables = Tables::create(&database)?;
    let shape = mix.usual_shape();
    let started = Instant::now();
    let _ = load(&database, &tables, &Population { records, shape, seed: 1 }, 1, &|_| {})?;
    println!("loaded {records} records in {:.1?}", started.elapsed());

    let worker = database.worker()?;
    let workload = Workload { mix, records, shape, theta, operations: 1 };
    let mut client = Client::new(workload, NewKeys::new(records, 0, 1), 2)?;
    let (mut request, mut scratch) = (Request::default(), Scratch::new(shape));
    let (started, mut transactions) = (Instant::now(), 0u64);
    while started.elapsed() < Duration::from_secs(seconds) {
        for _ in 0..100 {
            client.next(&mut request.operations);
            let _ = run(&worker, &tables, isolation, &request, &mut scratch)?;
        }
        transactions += 100;
    }
    println!("{:.0} transactions/s", transactions as f64 / started.elapsed().as_secs_f64());

    let (started, mut generated) = (Instant::now(), 0u64);
    while generated < transactions {
        client.next(&mut request.operations);
        std::hint::black_box(&request.operations);
        generated += 1;
    }
    println!("{:.0} ns of each to make up its input", started.elapsed().as_secs_f64() * 1e9 / generated as f64);
    Ok(())
}
