//! Stock-Level (clause 2.8).

use std::ops::{Bound, ControlFlow};

use super::{NO_DISTRICT, TOO_MANY_LINES, input, keys, outcome};
use crate::{
    engine::{Direction, ProcedureError, Transaction},
    table::missing,
    tpcc::{
        population::MOST_LINES,
        rows::{District, OrderLine, Stock},
        tables::Tables,
    },
};

/// How many of the latest orders are looked at.
const ORDERS: u32 = 20;

/// Clause 2.8.2.2: of the distinct items in the district's last 20 orders, how many are low in
/// stock.
pub(super) fn stock_level(
    txn: &Transaction<'_>,
    tables: &Tables,
    input: &input::StockLevel,
) -> Result<outcome::StockLevel, ProcedureError> {
    let (w, d) = (input.warehouse, input.district);
    let district = tables.district.need(txn, &keys::district(w, d), NO_DISTRICT)?.row;
    let next = district.get(District::NEXT_O_ID);

    let (low, high) = (keys::order_line(w, d, next.saturating_sub(ORDERS), 0), keys::order_line(w, d, next, 0));
    let range = (Bound::Included(low.as_slice()), Bound::Excluded(high.as_slice()));
    let mut items = [0; ORDERS as usize * MOST_LINES];
    let mut count = 0;
    tables.order_line.scan(txn, 0, range, Direction::Forward, |found| {
        if let Some(place) = items.get_mut(count) {
            *place = found.row.get(OrderLine::I_ID);
        }
        count += 1;
        ControlFlow::Continue(())
    })?;
    let Some(items) = items.get_mut(..count) else { return missing(TOO_MANY_LINES) };

    items.sort_unstable();
    let mut low = 0;
    for same in items.chunk_by(|one, other| one == other) {
        let stock = tables.stock.need(txn, &keys::stock(w, same[0]), "an ordered item has no stock")?.row;
        low += u32::from(stock.get(Stock::QUANTITY) < input.threshold);
    }
    Ok(outcome::StockLevel { low })
}
