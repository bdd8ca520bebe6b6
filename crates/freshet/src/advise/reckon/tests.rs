//! Given numbers, and what follows from them.

use super::*;

const CHANGES: Changes = Changes {
    batches: 0.01,
    records: 8.0,
    row_bytes: 512.0,
    updates: 7.0,
    update_bytes: 448.0,
    noted: 0.0,
    noted_bytes: 0.0,
    changed_bytes: 0.0,
    pieces: 0.0,
};

/// 10,000 transactions a second of 1 KiB and ten records of 64 bytes, eight of them once in a batch
/// and seven of these updates; two processors on each side. No mirror follows.
fn load() -> Load {
    Load {
        seconds: 60.0,
        transactions_s: 10_000.0,
        forward_us: 30.0,
        log_us: 0.5,
        ship_us: Some(2.0),
        shipped_as: Some(Form::Bytes),
        processors: 2,
        idle: Some(0.2),
        log_bytes: 1024.0,
        batch_bytes: 102_400.0,
        records: 10.0,
        changes: CHANGES,
        inputs: None,
        not_recorded: BTreeMap::new(),
        rows: 1_000_000,
        row_bytes: 100.0,
        index_entries: 1_700_000,
    }
}

/// Gets bytes over TCP: the link is busy for a fifth of the time, replay takes a tenth of a
/// processor.
fn now() -> Now {
    Now {
        form: Form::Bytes,
        fabric: "tcp".into(),
        one_sided: false,
        wire_bytes: 1100.0,
        sent_s: 11e6,
        link_busy: Some(0.2),
        round_trip_ms: Some((0.3, 1.0)),
        processors: Some(Processors { count: 2, idle: 0.7, following: 0.1 }),
        lag_bytes: 102_400.0,
        replays: Some(1.0),
    }
}

fn standby(now: Option<Now>) -> Standby {
    Standby { node: Some("00aa".into()), address: Some("b:7401".into()), now }
}

fn advised(load: &Load, now: Option<Now>) -> Advice {
    advise(load, vec![standby(now)]).remove(0)
}

/// Of a primary without standbys.
fn alone(load: &Load) -> Advice {
    advise(load, vec![Standby::default()]).remove(0)
}

fn of(advice: &Advice, form: Form) -> &Costs {
    advice.costs.iter().find(|costs| costs.form == form).unwrap()
}

/// Equal but for rounding.
fn assert_is(figure: Figure, value: f64, from: Origin) {
    assert!((figure.value - value).abs() <= 1e-6 * value.abs() && figure.from == from, "{figure:?} is not {value}");
}

#[test]
fn what_is_measured_is_taken_and_the_rest_is_marked() {
    let advice = advised(&load(), Some(now()));
    let bytes = of(&advice, Form::Bytes);
    assert_is(bytes.wire_bytes, 1100.0, Origin::Measured);
    assert_is(bytes.primary_us, 2.0, Origin::Measured);
    // A tenth of a processor for 10,000 a second.
    assert_is(bytes.standby_us, 10.0, Origin::Measured);
    assert_eq!((bytes.link_busy, bytes.needs, bytes.serves_readers), (Some(0.2), 0.1, true));
    // A hundred transactions are behind; two processors replay them.
    assert_is(bytes.failover_s, PROMOTE.value + 100.0 * 10e-6 / 2.0, Origin::Constant);
    let inputs = of(&advice, Form::Inputs);
    let share = INPUTS.value / 100.0;
    assert_is(inputs.wire_bytes, 1024.0 * share, Origin::Constant);
    let ship = ENCODE.value + share * SHIP_TCP.value + 0.01 * SHIP_BATCH_TCP.value;
    assert_is(inputs.primary_us, ship + 30.0 * 0.011, Origin::Constant);
    assert_is(inputs.standby_us, 63.0, Origin::Constant);
    assert!((inputs.link_busy.unwrap() - 0.2 * 1024.0 * share / 1100.0).abs() < 1e-9);
}

#[test]
fn a_standby_that_is_not_there_is_like_its_primary() {
    let advice = alone(&load());
    let bytes = of(&advice, Form::Bytes);
    assert_is(bytes.wire_bytes, 1024.0, Origin::Measured);
    assert_is(bytes.standby_us, FOLLOW.value + 0.01 * FOLLOW_BATCH.value, Origin::Constant);
    assert_is(bytes.failover_s, PROMOTE.value, Origin::Constant);
    assert_eq!((bytes.link_busy, advice.fits), (None, Form::Bytes));
    assert!(advice.why.contains("the link is not known"), "{}", advice.why);
    assert!(advice.why.contains("0.08 of the 2.00 processors"), "{}", advice.why);
    // Without one that is fed, shipping is not measured either.
    let one = Load { ship_us: None, shipped_as: None, ..load() };
    let bytes = of(&alone(&one), Form::Bytes).clone();
    assert_is(bytes.primary_us, SHIP_TCP.value + 0.01 * SHIP_BATCH_TCP.value, Origin::Constant);
}

#[test]
fn short_transactions_cost_what_their_batches_do() {
    let load = Load { changes: Changes { batches: 0.5, ..CHANGES }, ship_us: None, shipped_as: None, ..load() };
    let bytes = |now| of(&advised(&load, now), Form::Bytes).clone();
    let shm = Now { fabric: "shm".into(), one_sided: true, processors: None, ..now() };
    assert_is(bytes(Some(shm)).primary_us, SHIP_ONE_SIDED.value + 0.5 * SHIP_BATCH.value, Origin::Constant);
    assert_is(bytes(None).primary_us, SHIP_TCP.value + 0.5 * SHIP_BATCH_TCP.value, Origin::Constant);
    assert_is(bytes(None).standby_us, FOLLOW.value + 0.5 * FOLLOW_BATCH.value, Origin::Constant);
}

#[test]
fn what_others_take_beats_a_constant() {
    let processors = |following| Some(Processors { count: 2, idle: 0.5, following });
    let inputs = Now { form: Form::Inputs, processors: processors(0.4), ..now() };
    let slower = Now { processors: processors(0.3), ..now() };
    let advices = advise(&load(), vec![standby(Some(inputs)), standby(Some(now())), standby(Some(slower))]);
    let takes = |at: usize, form| of(&advices[at], form).standby_us;
    // Own figures first, then the mean of those of others.
    assert_is(takes(0, Form::Inputs), 40.0, Origin::Measured);
    assert_is(takes(0, Form::Bytes), 20.0, Origin::Elsewhere);
    assert_is(takes(1, Form::Bytes), 10.0, Origin::Measured);
    assert_is(takes(1, Form::Inputs), 40.0, Origin::Elsewhere);
    assert_is(takes(2, Form::Bytes), 30.0, Origin::Measured);
}

#[test]
fn a_mirror_is_reckoned_from_what_changes() {
    // The log says so of all updates: two pieces of each slot, the header and 24 bytes.
    let noted = Changes { noted: 7.0, noted_bytes: 448.0, changed_bytes: 7.0 * 40.0, pieces: 14.0, ..CHANGES };
    let load = Load { changes: noted, ..load() };
    let advice = advised(&load, Some(Now { fabric: "shm".into(), one_sided: true, ..now() }));
    let mirror = of(&advice, Form::Mirror);
    // 14 pieces of updates and the header of an insertion's slot: 536 bytes, in 14 entries for 100
    // transactions. In place, the same pieces and a row of 64 bytes with its header.
    let (undo, entries) = (15.0 * 16.0 + 280.0 + 16.0, 0.14);
    let written = undo + entries * ENTRY_FRAME + 280.0 + 80.0;
    assert_is(mirror.wire_bytes, written, Origin::Reckoned);
    let make = TAKE_IN.value + 8.0 * LAY_OUT.value + written / 1024.0 * WRITE.value;
    assert_is(mirror.primary_us, make + 0.01 * LIST.value + 7.0 * READ_BACK.value, Origin::Reckoned);
    assert_is(mirror.standby_us, 0.0, Origin::Reckoned);
    assert_eq!((mirror.needs, mirror.serves_readers), (0.0, false));
    // Packets have headers, where there are any.
    let verbs = advised(&load, Some(Now { fabric: "verbs".into(), one_sided: true, ..now() }));
    assert_is(of(&verbs, Form::Mirror).wire_bytes, written + (15.0 + entries) * 58.0, Origin::Reckoned);
    // Over TCP, a thread there answers for each piece that is read, and for each batch.
    let tcp = advised(&load, Some(now()));
    let tcp = of(&tcp, Form::Mirror);
    let operations = 15.0 + entries + 14.0 + 0.01;
    assert_is(tcp.wire_bytes, written + operations * 32.0 + 14.0 * 8.0, Origin::Reckoned);
    assert_is(tcp.primary_us, make + 0.01 * LIST_TCP.value + 14.0 * READ_TCP.value, Origin::Reckoned);
    assert_is(tcp.standby_us, 0.01 * LISTED_TCP.value + 14.0 * ANSWER_TCP.value, Origin::Reckoned);
}

#[test]
fn what_changes_is_estimated_where_the_log_does_not_have_it() {
    let shm = || Some(Now { fabric: "shm".into(), one_sided: true, ..now() });
    let wire = |changes: Changes| of(&advised(&Load { changes, ..load() }, shm()), Form::Mirror).wire_bytes.value;
    let written = |changed: f64, pieces: f64| {
        let undo: f64 = (pieces + 1.0) * 16.0 + changed + 16.0;
        undo + 0.01 * (undo * 100.0 / (ENTRY - ENTRY_FRAME)).ceil() * ENTRY_FRAME + changed + 80.0
    };
    // A header, and a part of the row.
    let part = |updates: f64, row: f64| updates * (16.0 + row * CHANGED.value / 100.0);
    assert!((wire(CHANGES) - written(part(7.0, 64.0), 7.0)).abs() < 1e-6);
    // Three of seven are whole, by what the log says.
    let noted = Changes { noted: 3.0, noted_bytes: 192.0, changed_bytes: 240.0, pieces: 3.0, ..CHANGES };
    assert!((wire(noted) - written(240.0 + part(4.0, 64.0), 7.0)).abs() < 1e-6);
    // Of long rows, the part is not close to the header.
    let long = Changes { row_bytes: 7064.0, update_bytes: 7000.0, ..CHANGES };
    assert!((wire(long) - written(part(7.0, 1000.0), 14.0)).abs() < 1e-6);
}

#[test]
fn a_mirror_that_takes_over_makes_tables_a_checkpoint_and_indexes() {
    let mirror = |now| of(&advised(&load(), Some(now)), Form::Mirror).clone();
    // A million rows of 100 bytes and 1.7 million entries, by two processors.
    // 116 bytes are a slot of 128.
    let (tables, entries) = (128e6 / 1_048_576.0 / (2.0 * TABLES.value), 1.7 / (2.0 * ENTRIES.value));
    assert_is(mirror(now()).failover_s, PROMOTE.value + tables + entries, Origin::Reckoned);
    // Beside the directory and the undo ring that a mirror has.
    let settings = MirrorSettings::default();
    let others = (settings.undo(&freshet_engine::LogSettings::default()) + settings.directory_bytes) as f64;
    assert_eq!(mirror(now()).memory_bytes, Some(128e6 + others));
}

#[test]
fn a_mirror_is_judged_by_its_own_processors() {
    let shipped = Load { shipped_as: Some(Form::Mirror), ship_us: Some(4.0), ..load() };
    let with = |processors| Now {
        form: Form::Mirror,
        one_sided: true,
        fabric: "shm".into(),
        wire_bytes: 700.0,
        link_busy: Some(0.0),
        processors: Some(processors),
        ..now()
    };
    // Others have them: the log would take 0.08 of one.
    let busy = advised(&shipped, Some(with(Processors { count: 4, idle: 0.01, following: 0.001 })));
    assert_eq!(busy.fits, Form::Mirror, "{}", busy.why);
    assert!(busy.why.contains("replay needs 0.08 of the 0.04 processors that are free"), "{}", busy.why);
    let mirror = of(&busy, Form::Mirror);
    assert_is(mirror.standby_us, 0.1, Origin::Measured);
    assert_is(mirror.primary_us, 4.0, Origin::Measured);
    assert_is(mirror.wire_bytes, 700.0, Origin::Measured);
    let idle = advised(&shipped, Some(with(Processors { count: 4, idle: 0.9, following: 0.001 })));
    assert_eq!(idle.fits, Form::Bytes, "{}", idle.why);
}

#[test]
fn bytes_fit_where_link_and_processors_suffice() {
    let advice = advised(&load(), Some(now()));
    assert_eq!(advice.fits, Form::Bytes, "{}", advice.why);
    assert!(of(&advice, Form::Bytes).keeps_up);
    assert!(advice.why.contains("busy for 20 %") && advice.why.contains("0.10 of the 1.50"), "{}", advice.why);
}

#[test]
fn inputs_fit_where_the_link_is_full_and_processors_are_idle() {
    let narrow = Now { link_busy: Some(0.95), ..now() };
    let advice = advised(&load(), Some(narrow.clone()));
    assert_eq!(advice.fits, Form::Inputs, "{}", advice.why);
    assert!(advice.why.contains("no inputs are recorded at present"), "{}", advice.why);
    assert!(of(&advice, Form::Inputs).keeps_up && of(&advice, Form::Inputs).serves_readers);
    let recorded = |share, wire_bytes| Load { inputs: Some(Inputs { share, wire_bytes, encode_us: 1.0 }), ..load() };
    let advice = advised(&recorded(0.98, 70.0), Some(narrow.clone()));
    assert_eq!(advice.fits, Form::Inputs, "{}", advice.why);
    assert!(advice.why.contains("98 % of the transactions"), "{}", advice.why);
    assert_is(of(&advice, Form::Inputs).wire_bytes, 70.0, Origin::Measured);
    // Next to nothing is recorded: nothing is won.
    let advice = advised(&recorded(0.05, 1000.0), Some(narrow.clone()));
    assert_ne!(advice.fits, Form::Inputs, "{}", advice.why);
    // The processors are busy with readers.
    let busy = Now { processors: Some(Processors { count: 2, idle: 0.1, following: 0.1 }), ..narrow };
    let advice = advised(&load(), Some(busy));
    assert_ne!(advice.fits, Form::Inputs, "{}", advice.why);
}

#[test]
fn who_has_inputs_keeps_them_until_the_link_is_wide() {
    let load = Load { shipped_as: Some(Form::Inputs), ship_us: Some(1.5), ..load() };
    let with = |link_busy| Now {
        form: Form::Inputs,
        wire_bytes: 100.0,
        link_busy: Some(link_busy),
        processors: Some(Processors { count: 2, idle: 0.5, following: 0.6 }),
        ..now()
    };
    // As bytes, 61 % and 41 %: `auto` stays above 50 %.
    let (narrow, wide) = (advised(&load, Some(with(0.06))), advised(&load, Some(with(0.04))));
    assert_eq!((narrow.fits, wide.fits), (Form::Inputs, Form::Bytes), "{} {}", narrow.why, wide.why);
    let inputs = of(&narrow, Form::Inputs);
    assert_is(inputs.standby_us, 60.0, Origin::Measured);
    assert_is(inputs.wire_bytes, 100.0, Origin::Measured);
    assert_is(inputs.primary_us, 1.5 + 0.33, Origin::Constant);
}

#[test]
fn a_mirror_fits_where_processors_do_not_keep_up_with_replay() {
    // Readers have nearly all of them, and replay needs more than it gets.
    let weak = Processors { count: 1, idle: 0.0, following: 0.05 };
    let slow = Now { form: Form::Inputs, one_sided: true, fabric: "shm".into(), processors: Some(weak), ..now() };
    let slow = Now { link_busy: Some(0.01), ..slow };
    let advice = advised(&load(), Some(slow));
    assert!(!of(&advice, Form::Bytes).keeps_up);
    assert_eq!(advice.fits, Form::Mirror, "{}", advice.why);
    assert!(advice.why.contains("serves no readers") && advice.why.contains("0.08 of the 0.05"), "{}", advice.why);
}

#[test]
fn who_falls_behind_needs_more_than_it_takes() {
    // All of its only processor goes to replay, which is four fifths of what it would take.
    let all = Processors { count: 1, idle: 0.0, following: 0.08 };
    let behind = Now { processors: Some(all), replays: Some(0.8), one_sided: true, fabric: "shm".into(), ..now() };
    let advice = advised(&load(), Some(behind.clone()));
    let bytes = of(&advice, Form::Bytes);
    assert_is(bytes.standby_us, 10.0, Origin::Measured);
    assert!(!bytes.keeps_up && advice.fits == Form::Mirror, "{}", advice.why);
    assert!(advice.why.contains("it makes 80 % of what is written visible"), "{}", advice.why);
    assert!(advice.why.contains("replay needs 0.10 of the 0.08"), "{}", advice.why);
    // One that has processors left, but does not use them.
    let idle = Processors { idle: 0.5, ..all };
    let advice = advised(&load(), Some(Now { processors: Some(idle), ..behind.clone() }));
    assert!(!of(&advice, Form::Bytes).keeps_up && advice.fits != Form::Bytes, "{}", advice.why);
    // One that does not replay at all does not say what replay would take.
    let resting = advised(&load(), Some(Now { replays: None, ..behind }));
    assert_is(of(&resting, Form::Bytes).standby_us, 8.0, Origin::Measured);
}

#[test]
fn who_gets_inputs_and_keeps_up_has_the_processors() {
    // No processor is idle, and what is visible lags by a little at the end.
    let all = Processors { count: 2, idle: 0.0, following: 0.3 };
    let now = Now {
        form: Form::Inputs,
        wire_bytes: 175.0,
        link_busy: Some(0.15),
        processors: Some(all),
        replays: Some(0.9997),
        ..now()
    };
    let advice = advised(&load(), Some(now));
    let (bytes, inputs) = (of(&advice, Form::Bytes), of(&advice, Form::Inputs));
    assert!(inputs.keeps_up && advice.fits == Form::Inputs, "{}", advice.why);
    // 88 %, if the link was busy with bytes and not with waiting.
    assert!(bytes.link_at_most && bytes.keeps_up && !inputs.link_at_most);
    assert!(advice.why.contains("bytes would keep the link busy for at most 88 %"), "{}", advice.why);
}

#[test]
fn where_nothing_fits_the_nearest_is_named() {
    let nothing = Processors { count: 1, idle: 0.0, following: 0.01 };
    let advice = advised(&load(), Some(Now { link_busy: Some(1.0), processors: Some(nothing), ..now() }));
    assert!(advice.why.contains("None fits"), "{}", advice.why);
    assert!(!of(&advice, advice.fits).keeps_up, "{}", advice.why);
}

#[test]
fn no_figure_is_infinite_or_not_a_number() {
    let nothing = Now { wire_bytes: 0.0, link_busy: Some(0.0), lag_bytes: 0.0, ..now() };
    let none = Processors { count: 0, idle: 0.0, following: 0.0 };
    for now in [None, Some(nothing.clone()), Some(Now { processors: Some(none), ..nothing })] {
        let advice = advised(&Load::default(), now);
        for costs in &advice.costs {
            let figures = [costs.wire_bytes, costs.primary_us, costs.standby_us, costs.failover_s];
            let busy = costs.link_busy.unwrap_or(0.0);
            let all = figures.map(|figure| figure.value).into_iter().chain([busy, costs.needs]);
            assert!(all.into_iter().all(f64::is_finite), "{costs:?}");
        }
    }
}
