//! Payment (clause 2.5).

use super::{NO_CUSTOMER, NO_DISTRICT, NO_WAREHOUSE, customer, input, keys, outcome};
use crate::{
    engine::{ProcedureError, Transaction},
    row::{Row, Text, View},
    tpcc::{
        rows::{Customer, CustomerData, District, History, Warehouse},
        tables::Tables,
    },
};

/// C_CREDIT of those whose payments are recorded in C_DATA.
const BAD_CREDIT: Text<2> = Text(*b"BC");

/// Clause 2.5.2.2, step by step.
pub(super) fn payment(
    txn: &Transaction<'_>,
    tables: &Tables,
    input: &input::Payment,
) -> Result<outcome::Payment, ProcedureError> {
    let (w, d) = (input.warehouse, input.district);
    let amount = i64::from(input.amount);

    let warehouse = tables.warehouse.need(txn, &keys::warehouse(w), NO_WAREHOUSE)?;
    let mut changed = warehouse.row.to_row();
    changed.set(Warehouse::YTD, changed.get(Warehouse::YTD).wrapping_add(amount));
    tables.warehouse.update(txn, warehouse.rid, &changed)?;

    let district = tables.district.need(txn, &keys::district(w, d), NO_DISTRICT)?;
    let mut changed = district.row.to_row();
    changed.set(District::YTD, changed.get(District::YTD).wrapping_add(amount));
    tables.district.update(txn, district.rid, &changed)?;

    let customer = customer(txn, tables, input.customer_warehouse, input.customer_district, input.customer)?;
    let mut changed = customer.row.to_row();
    let balance = changed.get(Customer::BALANCE).wrapping_sub(amount);
    let payments = changed.get(Customer::PAYMENT_COUNT).wrapping_add(1);
    changed.set(Customer::BALANCE, balance);
    changed.set(Customer::YTD_PAYMENT, changed.get(Customer::YTD_PAYMENT).wrapping_add(amount));
    changed.set(Customer::PAYMENT_COUNT, payments);
    tables.customer.update(txn, customer.rid, &changed)?;
    let number = changed.get(Customer::ID);
    let credit = changed.get(Customer::CREDIT);
    let data = if credit == BAD_CREDIT { Some(record_in_data(txn, tables, input, number)?) } else { None };

    let row = Row::new()
        .with(History::W_ID, w)
        .with(History::D_ID, d)
        .with(History::DATE, input.paid_at)
        .with(History::C_W_ID, input.customer_warehouse)
        .with(History::C_D_ID, input.customer_district)
        .with(History::C_ID, number)
        .with(History::PAYMENT_COUNT, payments)
        .with(History::AMOUNT, input.amount)
        .with(History::DATA, history_data(warehouse.row.get(Warehouse::NAME), district.row.get(District::NAME)));
    tables.history.insert(txn, &row)?;

    Ok(outcome::Payment {
        warehouse: address_of_warehouse(warehouse.row),
        district: address_of_district(district.row),
        customer: number,
        first: changed.get(Customer::FIRST),
        middle: changed.get(Customer::MIDDLE),
        last: changed.get(Customer::LAST),
        address: address_of_customer(changed.view()),
        phone: changed.get(Customer::PHONE),
        since: changed.get(Customer::SINCE),
        credit,
        credit_limit: changed.get(Customer::CREDIT_LIMIT),
        discount: changed.get(Customer::DISCOUNT),
        balance,
        data,
    })
}

/// Bad credit: the payment goes to the front of C_DATA, whose end is lost. Returns what is
/// displayed of it.
fn record_in_data(
    txn: &Transaction<'_>,
    tables: &Tables,
    input: &input::Payment,
    customer: u32,
) -> Result<Text<200>, ProcedureError> {
    let key = keys::customer(input.customer_warehouse, input.customer_district, customer);
    let data = tables.customer_data.need(txn, &key, NO_CUSTOMER)?;
    let mut front = Front::new();
    front.number(customer);
    front.number(input.customer_district.into());
    front.number(input.customer_warehouse.into());
    front.number(input.district.into());
    front.number(input.warehouse.into());
    front.amount(input.amount);
    let front = front.bytes();
    let mut changed = data.row.to_row();
    let text = changed.column_mut(CustomerData::DATA);
    text.copy_within(..text.len() - front.len(), front.len());
    text[..front.len()].copy_from_slice(front);
    let shown = Text::new(&text[..200]);
    tables.customer_data.update(txn, data.rid, &changed)?;
    Ok(shown)
}

/// Numbers in decimal, each followed by a space.
struct Front {
    bytes: [u8; Self::ROOM],
    length: usize,
}

impl Front {
    /// Six numbers of at most 11 characters, a decimal point, six spaces.
    const ROOM: usize = 6 * 11 + 1 + 6;

    fn new() -> Self {
        Self { bytes: [0; Self::ROOM], length: 0 }
    }

    fn push(&mut self, byte: u8) {
        self.bytes[self.length] = byte;
        self.length += 1;
    }

    /// The digits of `number`, at least `least` of them.
    fn digits(&mut self, number: u32, least: usize) {
        let mut digits = [0; 10];
        let mut count = 0;
        let mut left = number;
        while left > 0 || count < least {
            digits[count] = b'0' + (left % 10) as u8;
            left /= 10;
            count += 1;
        }
        for digit in digits[..count].iter().rev() {
            self.push(*digit);
        }
    }

    fn number(&mut self, number: u32) {
        self.digits(number, 1);
        self.push(b' ');
    }

    fn amount(&mut self, cents: i32) {
        if cents < 0 {
            self.push(b'-');
        }
        self.digits(cents.unsigned_abs() / 100, 1);
        self.push(b'.');
        self.digits(cents.unsigned_abs() % 100, 2);
        self.push(b' ');
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// H_DATA: W_NAME and D_NAME with four spaces between them.
fn history_data(warehouse: Text<10>, district: Text<10>) -> Text<24> {
    let (warehouse, district) = (warehouse.trimmed(), district.trimmed());
    let mut data = Text::EMPTY;
    data.0[..warehouse.len()].copy_from_slice(warehouse);
    let start = warehouse.len() + 4;
    data.0[start..start + district.len()].copy_from_slice(district);
    data
}

fn address_of_warehouse(row: View<'_, Warehouse>) -> outcome::Address {
    outcome::Address {
        street_1: row.get(Warehouse::STREET_1),
        street_2: row.get(Warehouse::STREET_2),
        city: row.get(Warehouse::CITY),
        state: row.get(Warehouse::STATE),
        zip: row.get(Warehouse::ZIP),
    }
}

fn address_of_district(row: View<'_, District>) -> outcome::Address {
    outcome::Address {
        street_1: row.get(District::STREET_1),
        street_2: row.get(District::STREET_2),
        city: row.get(District::CITY),
        state: row.get(District::STATE),
        zip: row.get(District::ZIP),
    }
}

fn address_of_customer(row: View<'_, Customer>) -> outcome::Address {
    outcome::Address {
        street_1: row.get(Customer::STREET_1),
        street_2: row.get(Customer::STREET_2),
        city: row.get(Customer::CITY),
        state: row.get(Customer::STATE),
        zip: row.get(Customer::ZIP),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_of_bad_credit_data_is_decimal() {
        let mut front = Front::new();
        for number in [3_000, 10, 65_535, 0] {
            front.number(number);
        }
        front.amount(500_000);
        assert_eq!(front.bytes(), b"3000 10 65535 0 5000.00 ");
        let mut widest = Front::new();
        for _ in 0..5 {
            widest.number(u32::MAX);
        }
        widest.amount(i32::MIN);
        assert!(widest.bytes().ends_with(b" -21474836.48 "));
    }

    #[test]
    fn history_joins_the_names() {
        assert_eq!(history_data(Text::new(b"abcdefghij"), Text::new(b"klmnop")).trimmed(), b"abcdefghij    klmnop");
        assert_eq!(history_data(Text::new(b"abcdefghij"), Text::new(b"klmnopqrst")).0, *b"abcdefghij    klmnopqrst");
    }
}
