//! Table 2: what transactions are told, and what they write.

use super::{
    super::{
        frame::Beside,
        plot::{Curve, Panel, places_of},
    },
    *,
};

/// A transaction of TPC-C.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    /// What it is told, what it logs, and what is sent.
    columns: [&'static str; 3],
    /// The paper's bytes: input, output by row.
    stated: Option<[f64; 2]>,
}

const KINDS: [Kind; 4] = [
    Kind {
        name: "NewOrder",
        columns: ["new_order_input_bytes", "new_order_log_bytes", "new_order_form_bytes"],
        stated: Some([200.0, 996.0]),
    },
    Kind {
        name: "Delivery",
        columns: ["delivery_input_bytes", "delivery_log_bytes", "delivery_form_bytes"],
        stated: Some([12.0, 741.0]),
    },
    Kind {
        name: "Payment",
        columns: ["payment_input_bytes", "payment_log_bytes", "payment_form_bytes"],
        stated: Some([32.0, 346.0]),
    },
    Kind {
        name: "CreditCheck",
        columns: ["credit_check_input_bytes", "credit_check_log_bytes", "credit_check_form_bytes"],
        stated: None,
    },
];

const COLUMNS: &[Column] = &[
    column("new_order_input_bytes", "/new_order/inputs"),
    column("new_order_rows_bytes", "/new_order/rows"),
    column("new_order_log_bytes", "/new_order/block"),
    column("new_order_form_bytes", "/new_order/form"),
    column("delivery_input_bytes", "/delivery/inputs"),
    column("delivery_rows_bytes", "/delivery/rows"),
    column("delivery_log_bytes", "/delivery/block"),
    column("delivery_form_bytes", "/delivery/form"),
    column("payment_input_bytes", "/payment/inputs"),
    column("payment_rows_bytes", "/payment/rows"),
    column("payment_log_bytes", "/payment/block"),
    column("payment_form_bytes", "/payment/form"),
    column("credit_check_input_bytes", "/credit_check/inputs"),
    column("credit_check_rows_bytes", "/credit_check/rows"),
    column("credit_check_log_bytes", "/credit_check/block"),
    column("credit_check_form_bytes", "/credit_check/form"),
];

const BYTES: &str = "Bytes of a transaction";

pub(super) fn experiment() -> Experiment {
    Experiment {
        name: "record-replay/table2",
        paper: PAPER,
        place: "table 2, section 4.1",
        shows: "what TPC-C's transactions are told, and what they write",
        x: "warehouses",
        columns: COLUMNS,
        calibrate: false,
        sweep: |scale| {
            let count = if scale.quick { 50 } else { 400 };
            vec![run(BYTES, 1.0, format!("sizes --transactions {count}"))]
        },
        scaled: |_| {
            "Each kind of transaction by itself, on one warehouse. A NewOrder has 15 lines, as the paper assumes; \
             a Delivery delivers an order in each of ten districts. What a transaction is told includes the \
             number of its procedure, its time and its snapshot. Its output is its block in the log: the rows, \
             each with a header that says what it replaces, and the block's own; rows are logged whole. The form \
             is what goes to a standby that asks for inputs, of many transactions of that kind one after another: \
             what it is told, and which records it writes."
                .to_owned()
        },
        panels,
        beside,
        differs,
    }
}

fn of(results: &Results, column: &str) -> f64 {
    results.at(BYTES, 1.0, column)
}

fn panels(results: &Results) -> Vec<Panel> {
    let kinds = |number: usize| KINDS.map(|kind| kind.columns[number]);
    let here = |label: &str, number: usize| results.across(label, (BYTES, 1.0), number, &kinds(number), 1.0);
    let there = |label: &str, number: usize| {
        let points: Vec<(f64, f64)> =
            places_of(KINDS).into_iter().filter_map(|(place, kind)| Some((place, kind.stated?[number]))).collect();
        Curve::stated(label, number, &points).apart()
    };
    let curves = vec![
        here("input", 0),
        here("written, as logged", 1),
        here("the form on the wire", 2),
        there("Paper: input", 0),
        there("Paper: output, by row", 1),
    ];
    let ticks = places_of(KINDS.map(|kind| kind.name.to_owned()));
    vec![Panel { ticks, ..Panel::over_numbers(BYTES, "", "bytes", curves) }]
}

fn beside(results: &Results) -> Vec<Beside> {
    let mut rows = Vec::new();
    for Kind { name, columns: [inputs, log, form], stated } in KINDS {
        let mut add = |what: &str, number: Option<f64>, column| {
            rows.push(Beside {
                what: format!("{name}, {what}"),
                stated: number.map_or_else(|| "-".to_owned(), |number| format!("{number} bytes")),
                source: "table 2",
                here: format!("{} bytes", short(of(results, column))),
            });
        };
        add("input", stated.map(|stated| stated[0]), inputs);
        add("output, by row", stated.map(|stated| stated[1]), log);
        add("input and write set, as sent", None, form);
    }
    rows
}

fn differs(results: &Results) -> Vec<String> {
    let mut out = Vec::new();
    for Kind { name, columns: [inputs, log, form], stated } in KINDS {
        let (inputs, log, form) = (of(results, inputs), of(results, log), of(results, form));
        let paper = match stated {
            Some([input, output]) => format!(
                "{} in the paper ({input} of {output}, or {})",
                than(inputs / log, input / output, 0.03),
                percent(input / output)
            ),
            None => "not in the paper's table".to_owned(),
        };
        out.push(format!(
            "{name} is told {} bytes and logs {}, so that the input is {} of the output, {paper}; with its write set \
             it is sent as {} bytes, {}.",
            short(inputs),
            short(log),
            percent(inputs / log),
            short(form),
            percent(form / log)
        ));
    }
    out
}
