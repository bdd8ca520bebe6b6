//! The consistency conditions 3.3.2.1 to 3.3.2.12.
//!
//! All twelve are checked in one read-only transaction, so at one snapshot, on a
//! primary or a standby, while others write. Each table is read once; the rest is
//! arithmetic.

mod facts;

use std::fmt::{self, Display, Write};

use serde::{Deserialize, Serialize};

use self::facts::Facts;
use super::{population::DISTRICTS, tables::Tables};
use crate::engine::{ProcedureError, Transaction};

/// How many violations of a condition are described.
const DESCRIBED: u64 = 3;

/// What became of one condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The condition: 1 to 12, as in clause 3.3.2.
    pub condition: u8,
    /// Whether it holds.
    pub ok: bool,
    /// How much was checked, or what is wrong: the first violations.
    pub detail: String,
}

impl Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.ok { "holds" } else { "VIOLATED" };
        write!(f, "3.3.2.{} {verdict}: {}", self.condition, self.detail)
    }
}

/// Checks all conditions at the transaction's snapshot.
///
/// # Errors
/// When a table cannot be read, or the initial population is not complete.
pub fn check(txn: &Transaction<'_>, tables: &Tables) -> Result<Vec<Verdict>, ProcedureError> {
    let facts = Facts::collect(txn, tables)?;
    let conditions: [fn(&Facts, &mut Findings); 12] = [
        warehouse_ytd_is_that_of_its_districts,
        order_numbers_are_dense,
        new_orders_are_dense,
        lines_are_as_many_as_promised,
        orders_without_carrier_are_new,
        each_order_has_its_lines,
        lines_are_delivered_with_their_order,
        warehouse_ytd_is_history,
        district_ytd_is_history,
        balances_are_deliveries_less_payments,
        what_is_not_new_was_delivered,
        balances_and_payments_are_deliveries,
    ];
    Ok((1..)
        .zip(conditions)
        .map(|(condition, check)| {
            let mut findings = Findings::default();
            check(&facts, &mut findings);
            findings.verdict(condition)
        })
        .collect())
}

/// What is found out about one condition.
#[derive(Default)]
struct Findings {
    checked: u64,
    violated: u64,
    detail: String,
}

impl Findings {
    /// Notes one instance of the condition.
    fn expect(&mut self, holds: bool, violation: impl FnOnce() -> String) {
        self.checked += 1;
        if !holds {
            self.violated += 1;
            if self.violated <= DESCRIBED {
                let separator = if self.violated == 1 { "" } else { "; " };
                let _ = write!(self.detail, "{separator}{}", violation());
            }
        }
    }

    fn verdict(self, condition: u8) -> Verdict {
        let detail = match self.violated {
            0 => format!("{} checked", self.checked),
            count if count <= DESCRIBED => self.detail,
            count => format!("{}; and {} more of {}", self.detail, count - DESCRIBED, self.checked),
        };
        Verdict { condition, ok: self.violated == 0, detail }
    }
}

/// Cents as money.
struct Money(i64);

impl Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        write!(f, "{sign}{}.{:02}", self.0.unsigned_abs() / 100, self.0.unsigned_abs() % 100)
    }
}

/// 3.3.2.1: W_YTD = sum(D_YTD). And all warehouses with all their districts are there to be
/// checked.
fn warehouse_ytd_is_that_of_its_districts(facts: &Facts, findings: &mut Findings) {
    let expected = u64::from(facts.population.scale.warehouses);
    let found = facts.warehouses.values().filter(|warehouse| warehouse.ytd.is_some()).count() as u64;
    findings.expect(found == expected, || format!("{found} warehouses are left of {expected}"));
    let expected = expected * u64::from(DISTRICTS);
    let found = facts.districts.values().filter(|district| district.next_order.is_some()).count() as u64;
    findings.expect(found == expected, || format!("{found} districts are left of {expected}"));
    for (w, warehouse) in &facts.warehouses {
        let ytd = warehouse.ytd.unwrap_or(0);
        findings.expect(ytd == warehouse.districts, || {
            format!("warehouse {w}: W_YTD is {}, its districts' sum {}", Money(ytd), Money(warehouse.districts))
        });
    }
}

/// 3.3.2.2: D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID), the latter where there are new orders.
fn order_numbers_are_dense(facts: &Facts, findings: &mut Findings) {
    for ((w, d), district) in &facts.districts {
        let last = i64::from(district.next_order.unwrap_or(0)) - 1;
        findings.expect(last == i64::from(district.last_order), || {
            format!("district {w}/{d}: D_NEXT_O_ID - 1 is {last}, the last order {}", district.last_order)
        });
        if let Some((_, newest)) = district.new_range {
            findings.expect(last == i64::from(newest), || {
                format!("district {w}/{d}: D_NEXT_O_ID - 1 is {last}, the last new order {newest}")
            });
        }
    }
}

/// 3.3.2.3: max(NO_O_ID) - min(NO_O_ID) + 1 = rows in NEW-ORDER.
fn new_orders_are_dense(facts: &Facts, findings: &mut Findings) {
    for ((w, d), district) in &facts.districts {
        let Some((oldest, newest)) = district.new_range else { continue };
        let expected = u64::from(newest - oldest) + 1;
        findings.expect(district.new_orders == expected, || {
            let count = district.new_orders;
            format!("district {w}/{d}: {count} new orders with the numbers {oldest} to {newest}")
        });
    }
}

/// 3.3.2.4: sum(O_OL_CNT) = rows in ORDER-LINE.
fn lines_are_as_many_as_promised(facts: &Facts, findings: &mut Findings) {
    for ((w, d), district) in &facts.districts {
        findings.expect(district.lines == district.lines_promised, || {
            let (lines, promised) = (district.lines, district.lines_promised);
            format!("district {w}/{d}: {lines} order lines, the orders say {promised}")
        });
    }
}

/// 3.3.2.5: O_CARRIER_ID is null if and only if there is a row in NEW-ORDER.
fn orders_without_carrier_are_new(facts: &Facts, findings: &mut Findings) {
    for order in &facts.orders {
        findings.expect(order.has_carrier != order.is_new, || {
            let (w, d, o) = order.key;
            let what = if order.is_new { "has a carrier and is new" } else { "has no carrier and is not new" };
            format!("order {w}/{d}/{o} {what}")
        });
    }
    for (w, d, o) in &facts.new_without_order {
        findings.expect(false, || format!("order {w}/{d}/{o} is new and not there"));
    }
}

/// 3.3.2.6: O_OL_CNT = the order's rows in ORDER-LINE.
fn each_order_has_its_lines(facts: &Facts, findings: &mut Findings) {
    for order in &facts.orders {
        findings.expect(order.lines == u32::from(order.lines_promised), || {
            let (w, d, o) = order.key;
            format!("order {w}/{d}/{o} has {} lines instead of {}", order.lines, order.lines_promised)
        });
    }
    for (w, d, o) in &facts.lines_without_order {
        findings.expect(false, || format!("order {w}/{d}/{o} has lines and is not there"));
    }
}

/// 3.3.2.7: OL_DELIVERY_D is null if and only if O_CARRIER_ID is.
fn lines_are_delivered_with_their_order(facts: &Facts, findings: &mut Findings) {
    for order in &facts.orders {
        let expected = if order.has_carrier { order.lines } else { 0 };
        findings.expect(order.lines_delivered == expected, || {
            let (w, d, o) = order.key;
            let carrier = if order.has_carrier { "a" } else { "no" };
            let (delivered, lines) = (order.lines_delivered, order.lines);
            format!("order {w}/{d}/{o} has {carrier} carrier and {delivered} of {lines} lines delivered")
        });
    }
}

/// 3.3.2.8: W_YTD = sum(H_AMOUNT).
fn warehouse_ytd_is_history(facts: &Facts, findings: &mut Findings) {
    for (w, warehouse) in &facts.warehouses {
        let ytd = warehouse.ytd.unwrap_or(0);
        findings.expect(ytd == warehouse.history, || {
            format!("warehouse {w}: W_YTD is {}, its payments {}", Money(ytd), Money(warehouse.history))
        });
    }
}

/// 3.3.2.9: D_YTD = sum(H_AMOUNT).
fn district_ytd_is_history(facts: &Facts, findings: &mut Findings) {
    for ((w, d), district) in &facts.districts {
        findings.expect(district.ytd == district.history, || {
            let (ytd, history) = (Money(district.ytd), Money(district.history));
            format!("district {w}/{d}: D_YTD is {ytd}, its payments {history}")
        });
    }
}

/// 3.3.2.10: C_BALANCE = sum(OL_AMOUNT of what was delivered) - sum(H_AMOUNT).
fn balances_are_deliveries_less_payments(facts: &Facts, findings: &mut Findings) {
    for ((w, d, c), customer) in &facts.customers {
        let balance = customer.account.map_or(0, |(balance, _)| balance);
        let expected = customer.delivered.wrapping_sub(customer.paid);
        findings.expect(balance == expected, || {
            format!("customer {w}/{d}/{c}: C_BALANCE is {} instead of {}", Money(balance), Money(expected))
        });
    }
}

/// 3.3.2.11: rows in ORDER - rows in NEW-ORDER = 2,100.
///
/// That is how many orders were delivered initially, so as it stands the condition holds for the
/// initial population only. C_DELIVERY_CNT counts the deliveries since then, so always: = 2,100 +
/// sum(C_DELIVERY_CNT).
fn what_is_not_new_was_delivered(facts: &Facts, findings: &mut Findings) {
    let initially = u64::from(facts.population.scale.first_undelivered() - 1);
    for ((w, d), district) in &facts.districts {
        let expected = initially + district.deliveries;
        findings.expect(district.orders == expected + district.new_orders, || {
            let (orders, new) = (district.orders, district.new_orders);
            format!("district {w}/{d}: {orders} orders, {new} of them new, but {expected} were delivered")
        });
    }
}

/// 3.3.2.12: C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT of what was delivered). And no customer is
/// missing.
fn balances_and_payments_are_deliveries(facts: &Facts, findings: &mut Findings) {
    let expected = u64::from(facts.population.scale.customers);
    for ((w, d), district) in &facts.districts {
        let found = district.customers;
        findings.expect(found == expected, || format!("district {w}/{d}: {found} customers are left of {expected}"));
    }
    for ((w, d, c), customer) in &facts.customers {
        let (balance, paid) = customer.account.unwrap_or((0, 0));
        let sum = balance.wrapping_add(paid);
        findings.expect(sum == customer.delivered, || {
            let (sum, delivered) = (Money(sum), Money(customer.delivered));
            format!("customer {w}/{d}/{c}: C_BALANCE + C_YTD_PAYMENT is {sum} instead of {delivered}")
        });
    }
}
