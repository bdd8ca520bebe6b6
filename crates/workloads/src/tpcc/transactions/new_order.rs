//! New-Order (clause 2.4).

use super::{NO_CUSTOMER, NO_DISTRICT, NO_WAREHOUSE, input, keys, outcome};
use crate::{
    engine::{ProcedureError, Transaction},
    list::List,
    row::{Row, Text},
    table::missing,
    tpcc::{
        outcome::Outcome,
        rows::{Customer, District, Item, NewOrderRow, Order, OrderLine, Stock, StockData, Warehouse},
        tables::Tables,
        text::is_original,
    },
};

/// Clause 2.4.2.2, step by step.
pub(super) fn new_order(
    txn: &Transaction<'_>,
    tables: &Tables,
    input: &input::NewOrder,
) -> Result<Outcome, ProcedureError> {
    let (w, d) = (input.warehouse, input.district);
    let warehouse = tables.warehouse.need(txn, &keys::warehouse(w), NO_WAREHOUSE)?.row;
    let warehouse_tax = warehouse.get(Warehouse::TAX);

    let district = tables.district.need(txn, &keys::district(w, d), NO_DISTRICT)?;
    let district_tax = district.row.get(District::TAX);
    let order = district.row.get(District::NEXT_O_ID);
    let mut changed = district.row.to_row();
    changed.set(District::NEXT_O_ID, order.wrapping_add(1));
    tables.district.update(txn, district.rid, &changed)?;

    let customer = tables.customer.need(txn, &keys::customer(w, d, input.customer), NO_CUSTOMER)?.row;
    let discount = customer.get(Customer::DISCOUNT);

    let all_local = input.lines.iter().all(|line| line.supply_warehouse == w);
    let header = Row::new()
        .with(Order::W_ID, w)
        .with(Order::D_ID, d)
        .with(Order::ID, order)
        .with(Order::C_ID, input.customer)
        .with(Order::ENTRY_D, input.entered_at)
        .with(Order::LINE_COUNT, input.lines.len() as u8)
        .with(Order::ALL_LOCAL, u8::from(all_local));
    tables.orders.insert(txn, &header)?;
    let pending = Row::new().with(NewOrderRow::W_ID, w).with(NewOrderRow::D_ID, d).with(NewOrderRow::O_ID, order);
    tables.new_order.insert(txn, &pending)?;

    let mut lines = List::new();
    let mut sum = 0;
    for (number, line) in (1..).zip(input.lines.iter()) {
        let Some(item) = tables.item.find(txn, &keys::item(line.item))? else {
            // Clause 2.4.2.3: all the work is done, and now undone.
            return Ok(Outcome::RolledBack(outcome::RolledBack {
                order,
                last: customer.get(Customer::LAST),
                credit: customer.get(Customer::CREDIT),
            }));
        };
        let line = order_line(txn, tables, input, order, number, line, item.row)?;
        sum += i64::from(line.amount);
        let fits = lines.push(line);
        debug_assert!(fits, "the outcome has room for every line of the input");
    }
    Ok(Outcome::NewOrder(outcome::NewOrder {
        order,
        last: customer.get(Customer::LAST),
        credit: customer.get(Customer::CREDIT),
        discount,
        warehouse_tax,
        district_tax,
        total: total(sum, discount, warehouse_tax, district_tax),
        lines,
    }))
}

/// What is done for each item: its stock is taken, the line is inserted.
#[inline]
fn order_line(
    txn: &Transaction<'_>,
    tables: &Tables,
    input: &input::NewOrder,
    order: u32,
    number: u8,
    line: &input::Line,
    item: crate::row::View<'_, Item>,
) -> Result<outcome::OrderedLine, ProcedureError> {
    let price = item.get(Item::PRICE);

    let key = keys::stock(line.supply_warehouse, line.item);
    let stock = tables.stock.need(txn, &key, NO_STOCK)?;
    let mut changed = stock.row.to_row();
    let quantity = stock_left(changed.get(Stock::QUANTITY), line.quantity);
    changed.set(Stock::QUANTITY, quantity);
    changed.set(Stock::YTD, changed.get(Stock::YTD).wrapping_add(u32::from(line.quantity)));
    changed.set(Stock::ORDER_COUNT, changed.get(Stock::ORDER_COUNT).wrapping_add(1));
    if line.supply_warehouse != input.warehouse {
        changed.set(Stock::REMOTE_COUNT, changed.get(Stock::REMOTE_COUNT).wrapping_add(1));
    }
    tables.stock.update(txn, stock.rid, &changed)?;

    let data = tables.stock_data.need(txn, &key, NO_STOCK)?.row;
    let information = usize::from(input.district.wrapping_sub(1)) * StockData::DISTRICT_WIDTH;
    let Some(information) = data.bytes(StockData::DISTRICTS).get(information..information + StockData::DISTRICT_WIDTH)
    else {
        return missing(NO_DISTRICT);
    };
    // S_DATA is looked at only where it can matter.
    let both = is_original(item.bytes(Item::DATA)) && is_original(data.bytes(StockData::DATA));

    let amount = i32::from(line.quantity).saturating_mul(price);
    let row = Row::new()
        .with(OrderLine::W_ID, input.warehouse)
        .with(OrderLine::D_ID, input.district)
        .with(OrderLine::O_ID, order)
        .with(OrderLine::NUMBER, number)
        .with(OrderLine::I_ID, line.item)
        .with(OrderLine::SUPPLY_W_ID, line.supply_warehouse)
        .with(OrderLine::QUANTITY, line.quantity)
        .with(OrderLine::AMOUNT, amount)
        .with(OrderLine::DIST_INFO, Text::new(information));
    tables.order_line.insert(txn, &row)?;

    let brand = if both { b'B' } else { b'G' };
    Ok(outcome::OrderedLine { name: item.get(Item::NAME), stock: quantity, brand, price, amount })
}

const NO_STOCK: &str = "there is no such stock";

/// S_QUANTITY after `ordered` were taken, with 91 delivered when fewer than 10 would be left.
#[inline]
fn stock_left(quantity: i16, ordered: u8) -> i16 {
    let ordered = i16::from(ordered);
    let left = quantity.wrapping_sub(ordered);
    if quantity >= ordered + 10 { left } else { left.wrapping_add(91) }
}

/// Total-amount: sum(OL_AMOUNT) * (1 - C_DISCOUNT) * (1 + W_TAX + D_TAX), rounded to cents.
fn total(sum: i64, discount: u16, warehouse_tax: u16, district_tax: u16) -> i64 {
    let share = 10_000 - i128::from(discount);
    let taxed = 10_000 + i128::from(warehouse_tax) + i128::from(district_tax);
    ((i128::from(sum) * share * taxed + 50_000_000) / 100_000_000) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stock_is_filled_up_before_it_runs_out() {
        assert_eq!(stock_left(20, 10), 10);
        assert_eq!(stock_left(19, 10), 100);
        assert_eq!(stock_left(10, 1), 100);
        assert_eq!(stock_left(11, 1), 10);
    }

    #[test]
    fn totals_are_discounted_and_taxed() {
        assert_eq!(total(10_000, 0, 0, 0), 10_000);
        // 100.00 * 0.9 * 1.15 = 103.50
        assert_eq!(total(10_000, 1_000, 500, 1_000), 10_350);
        // 0.03 * 0.5 * 1 = 0.015, rounded up.
        assert_eq!(total(3, 5_000, 0, 0), 2);
        // The largest there is: 15 lines of 10 items at 100.00.
        assert_eq!(total(1_500_000, 0, 2_000, 2_000), 2_100_000);
    }
}
