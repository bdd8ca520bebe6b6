//! The advice for people.

use std::fmt::Write;

use super::{
    Report,
    reckon::{Advice, Costs, Figure, Form, Load, Now, Origin},
};
use crate::{messages::plain, units};

/// How a figure's origin is marked.
fn mark(origin: Origin) -> char {
    match origin {
        Origin::Measured => 'm',
        Origin::Elsewhere => 'e',
        Origin::Constant => 'c',
        Origin::Reckoned => 'r',
    }
}

fn bytes(value: f64) -> String {
    units::bytes(value.round() as u64)
}

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0))
}

fn seconds(value: f64) -> String {
    units::micros(value * 1e6)
}

/// The report as lines for people.
pub(super) fn text(report: &Report) -> String {
    let mut out = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<16} {}", plain(&value));
    };
    line("primary", format!("{} at {}, measured for {:.0} s", report.node, report.address, report.measured.seconds));
    primary(&report.measured, &mut line);
    for advice in &report.standbys {
        let _ = writeln!(out);
        standby(advice, &mut out);
    }
    let _ = writeln!(
        out,
        "\nPer transaction that writes; primary and standby are processor time.\n\
         m: measured now. e: measured now at other standbys. c: measured now, times a constant.\n\
         r: a mirror's figures are reckoned, not measured.\n\
         The constants are those of docs/benchmarks.md#what-freshet-advise-reckons-with; --json shows them."
    );
    out
}

fn primary(load: &Load, line: &mut impl FnMut(&str, String)) {
    let rate = units::grouped(load.transactions_s.round() as u64);
    let idle = percent(load.idle);
    line("load", format!("{rate} transactions/s that write; {} processors, idle {idle}", load.processors));
    line(
        "transaction",
        format!(
            "{} of log, {:.1} records; {:.1} if each batch of {} writes a record once",
            bytes(load.log_bytes),
            load.records,
            load.changes.records,
            bytes(load.batch_bytes)
        ),
    );
    let ship = load.ship_us.map_or("not measured".to_owned(), |ship| format!("{ship:.2} us for each standby"));
    line(
        "processor time",
        format!(
            "forward work {:.1} us (sessions and reading, too), log {:.2} us, shipping {ship}",
            load.forward_us, load.log_us
        ),
    );
    let mut inputs = match load.inputs {
        Some(inputs) => format!(
            "{} of the transactions go as inputs, all in {}; encoding takes {:.2} us",
            percent(Some(inputs.share)),
            bytes(inputs.wire_bytes),
            inputs.encode_us
        ),
        None => "not recorded at present: no standby asks for them, nor does `record-inputs`".to_owned(),
    };
    for (number, (why, count)) in load.not_recorded.iter().enumerate() {
        let _ =
            write!(inputs, "{} {why} {}", if number == 0 { "; not recorded:" } else { "," }, units::grouped(*count));
    }
    line("inputs", inputs);
    line(
        "tables",
        format!(
            "about {} rows of {}, {} index entries",
            units::grouped(load.rows),
            bytes(load.row_bytes),
            units::grouped(load.index_entries)
        ),
    );
}

/// How a standby is fed at present.
fn fed(now: &Now, line: &mut impl FnMut(&str, String)) {
    let by = if now.one_sided { "one-sided" } else { "by a thread there" };
    let trip = now
        .round_trip_ms
        .map_or("not measured".to_owned(), |(least, mean)| format!("{least:.2} ms at least, {mean:.2} ms on average"));
    let carries = now.link_carries().map_or(String::new(), |carries| format!(", so it carries {}/s", bytes(carries)));
    line("gets", format!("{} over {}, {by}: {}/s", now.form.name(), now.fabric, bytes(now.sent_s)));
    line("link", format!("busy {}{carries}; until a batch is persistent there: {trip}", percent(now.link_busy)));
    line(
        "processors",
        now.processors.map_or("not known: counted as the primary's, idle".to_owned(), |those| {
            let idle = percent(Some(those.idle));
            format!("{}, idle {idle}; following takes {:.2} of one", those.count, those.following)
        }),
    );
    let replays = now.replays.map_or("nothing".to_owned(), |share| percent(Some(share)));
    let (whom, becomes) = match now.form {
        Form::Mirror => ("in its memory", "came there"),
        _ => ("for its readers", "became visible"),
    };
    line("behind", format!("{} {whom}, on average; {replays} of what was written {becomes}", bytes(now.lag_bytes)));
}

fn standby(advice: &Advice, out: &mut String) {
    let name = match (&advice.standby.node, &advice.standby.address) {
        (Some(node), Some(address)) => format!("{node} at {address}"),
        _ => "none has joined; one like the primary, idle, over TCP".to_owned(),
    };
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<16} {}", plain(&value));
    };
    line("standby", name);
    line("fits", format!("{}: {}", advice.fits.name(), advice.why));
    match &advice.standby.now {
        Some(now) => fed(now, &mut line),
        None if advice.standby.node.is_some() => {
            line("", "not connected: counted as a machine like the primary's, idle".into());
        }
        None => {}
    }
    let columns = ["wire", "primary", "standby", "link busy", "needs", "keeps up", "failover", "readers", "memory"];
    let row = |cells: [String; 9]| cells.map(|cell| format!("{cell:>12}")).concat();
    line("", row(columns.map(str::to_owned)));
    for costs in &advice.costs {
        line(&format!("  {}", costs.form.name()), row(cells(costs)));
    }
}

fn cells(costs: &Costs) -> [String; 9] {
    let marked = |figure: Figure, text: String| format!("{text} {}", mark(figure.from));
    let yes = |value: bool| if value { "yes" } else { "no" }.to_owned();
    let micros = |figure: Figure| marked(figure, units::micros(figure.value));
    [
        marked(costs.wire_bytes, bytes(costs.wire_bytes.value)),
        micros(costs.primary_us),
        micros(costs.standby_us),
        if costs.link_at_most { format!("≤ {}", percent(costs.link_busy)) } else { percent(costs.link_busy) },
        format!("{:.2} cpu", costs.needs),
        yes(costs.keeps_up),
        marked(costs.failover_s, seconds(costs.failover_s.value)),
        yes(costs.serves_readers),
        costs.memory_bytes.map_or("-".to_owned(), bytes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::{
        constants,
        reckon::{Form, Processors, Standby, advise},
    };

    #[test]
    fn the_answer_names_what_it_rests_on() {
        let load =
            Load { transactions_s: 12_345.0, log_bytes: 1442.0, processors: 2, seconds: 60.0, ..Load::default() };
        let now = Now {
            form: Form::Bytes,
            fabric: "tcp".into(),
            one_sided: false,
            wire_bytes: 1500.0,
            sent_s: 18e6,
            link_busy: Some(0.6),
            round_trip_ms: Some((0.2, 1.25)),
            processors: Some(Processors { count: 2, idle: 0.5, following: 0.25 }),
            lag_bytes: 2048.0,
            replays: Some(1.0),
        };
        let there = Standby { node: Some("0b".into()), address: Some("b:7401".into()), now: Some(now) };
        let gone = Standby { now: None, ..there.clone() };
        let shown = |standby| {
            let (node, address) = ("0a".into(), "a:7401".into());
            let (standbys, constants) = (advise(&load, vec![standby]), constants::ALL.to_vec());
            text(&Report { node, address, measured: load.clone(), standbys, constants })
        };
        let text = shown(there);
        for line in [
            "primary          0a at a:7401, measured for 60 s",
            "12,345 transactions/s that write; 2 processors, idle -",
            "1.4 KiB of log",
            "standby          0b at b:7401\nfits             bytes: the link is busy for 60 %",
            "gets             bytes over tcp, by a thread there: 17.2 MiB/s",
            "busy 60 %, so it carries 28.6 MiB/s; until a batch is persistent there: 0.20 ms at least, 1.25 ms",
            "2, idle 50 %; following takes 0.25 of one",
            "2.0 KiB for its readers, on average; 100 % of what was written became visible",
            "1.5 KiB m",
            "reckoned, not measured",
        ] {
            assert!(text.contains(line), "{line}:\n{text}");
        }
        let rows: Vec<_> = text.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   ")).collect();
        let marks = |row: usize, mark: &str| rows[row].matches(mark).count();
        assert!(rows[0].starts_with("  bytes") && rows[1].starts_with("  inputs") && rows[2].starts_with("  mirror"));
        assert_eq!((marks(0, " m "), marks(2, " r "), marks(2, " m ")), (2, 4, 0), "{text}");
        assert!(shown(gone).contains("not connected: counted as a machine like the primary's"));
        assert!(shown(Standby::default()).contains("none has joined; one like the primary"));
    }
}
