//! What a transaction answers: the output data that its terminal displays
//! (clauses 2.4.3.3, 2.5.3.3, 2.6.3.3 and 2.8.3.3) or its result file records (2.7.2.2).

use serde::{Deserialize, Serialize};

use super::population::{DISTRICTS, MOST_LINES};
use crate::{list::List, row::Text};

/// A transaction's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Clause 2.4.
    NewOrder(NewOrder),
    /// Clause 2.4.2.3: an item number was not valid, and the order was rolled back.
    RolledBack(RolledBack),
    /// Clause 2.5.
    Payment(Payment),
    /// Clause 2.6.
    OrderStatus(OrderStatus),
    /// Clause 2.7.
    Delivery(Delivery),
    /// Clause 2.8.
    StockLevel(StockLevel),
    /// Of TPC-C+.
    CreditCheck(CreditCheck),
}

/// One line of an order, as displayed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderedLine {
    /// I_NAME.
    pub name: Text<24>,
    /// S_QUANTITY, after the order.
    pub stock: i16,
    /// Brand-generic: `B` when both the item and its stock are ORIGINAL, otherwise `G`.
    pub brand: u8,
    /// I_PRICE, in cents.
    pub price: i32,
    /// OL_AMOUNT, in cents.
    pub amount: i32,
}

/// Clause 2.4.3.3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewOrder {
    /// O_ID.
    pub order: u32,
    /// C_LAST.
    pub last: Text<16>,
    /// C_CREDIT.
    pub credit: Text<2>,
    /// C_DISCOUNT, in ten-thousandths.
    pub discount: u16,
    /// W_TAX, in ten-thousandths.
    pub warehouse_tax: u16,
    /// D_TAX, in ten-thousandths.
    pub district_tax: u16,
    /// Total-amount, in cents.
    pub total: i64,
    /// The lines.
    pub lines: List<OrderedLine, MOST_LINES>,
}

/// Clause 2.4.3.4: what is displayed next to "Item number is not valid".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RolledBack {
    /// O_ID, which the next order will bear instead.
    pub order: u32,
    /// C_LAST.
    pub last: Text<16>,
    /// C_CREDIT.
    pub credit: Text<2>,
}

/// An address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// First line of the street.
    pub street_1: Text<20>,
    /// Second line of the street.
    pub street_2: Text<20>,
    /// City.
    pub city: Text<20>,
    /// State.
    pub state: Text<2>,
    /// Zip code.
    pub zip: Text<9>,
}

/// Clause 2.5.3.3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payment {
    /// The warehouse's address.
    pub warehouse: Address,
    /// The district's address.
    pub district: Address,
    /// C_ID.
    pub customer: u32,
    /// C_FIRST.
    pub first: Text<16>,
    /// C_MIDDLE.
    pub middle: Text<2>,
    /// C_LAST.
    pub last: Text<16>,
    /// The customer's address.
    pub address: Address,
    /// C_PHONE.
    pub phone: Text<16>,
    /// C_SINCE.
    pub since: u64,
    /// C_CREDIT.
    pub credit: Text<2>,
    /// C_CREDIT_LIM, in cents.
    pub credit_limit: i64,
    /// C_DISCOUNT, in ten-thousandths.
    pub discount: u16,
    /// C_BALANCE, in cents, after the payment.
    pub balance: i64,
    /// The first 200 characters of C_DATA when the credit is bad.
    pub data: Option<Text<200>>,
}

/// One line of an order that was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusLine {
    /// OL_I_ID.
    pub item: u32,
    /// OL_SUPPLY_W_ID.
    pub supply_warehouse: u16,
    /// OL_QUANTITY.
    pub quantity: u8,
    /// OL_AMOUNT, in cents.
    pub amount: i32,
    /// OL_DELIVERY_D; 0 when it was not delivered yet.
    pub delivered_at: u64,
}

/// Clause 2.6.3.3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderStatus {
    /// C_ID.
    pub customer: u32,
    /// C_FIRST.
    pub first: Text<16>,
    /// C_MIDDLE.
    pub middle: Text<2>,
    /// C_LAST.
    pub last: Text<16>,
    /// C_BALANCE, in cents.
    pub balance: i64,
    /// O_ID of the customer's latest order.
    pub order: u32,
    /// O_ENTRY_D.
    pub entered_at: u64,
    /// O_CARRIER_ID; 0 when it was not delivered yet.
    pub carrier: u8,
    /// The lines.
    pub lines: List<StatusLine, MOST_LINES>,
}

/// Clause 2.7.2.2: what the result file says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// O_CARRIER_ID.
    pub carrier: u8,
    /// O_ID of the order delivered in each district; 0 where there was none.
    pub orders: [u32; DISTRICTS as usize],
}

/// What TPC-C+'s Credit-Check finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditCheck {
    /// How many orders of the customer's are not delivered yet.
    pub orders: u32,
    /// The sum of their lines, in cents.
    pub ordered: i64,
    /// C_BALANCE, in cents.
    pub balance: i64,
    /// C_CREDIT_LIM, in cents.
    pub limit: i64,
    /// C_CREDIT from now on.
    pub credit: Text<2>,
}

/// Clause 2.8.3.3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockLevel {
    /// How many of the items ordered lately are low in stock.
    pub low: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_travel() {
        let mut lines = List::new();
        assert!(lines.push(OrderedLine { name: Text::new(b"thing"), stock: -3, brand: b'B', price: 1, amount: 2 }));
        for outcome in [
            Outcome::NewOrder(NewOrder { order: 7, total: 1 << 40, lines, ..Default::default() }),
            Outcome::RolledBack(RolledBack::default()),
            Outcome::Payment(Payment { data: Some(Text::new(b"3 1 1")), ..Default::default() }),
            Outcome::OrderStatus(OrderStatus::default()),
            Outcome::Delivery(Delivery { carrier: 1, orders: [1; 10] }),
            Outcome::StockLevel(StockLevel { low: 3 }),
            Outcome::CreditCheck(CreditCheck { credit: Text(*b"GC"), limit: -1, ..Default::default() }),
        ] {
            let bytes = postcard::to_stdvec(&outcome).unwrap();
            assert_eq!(postcard::from_bytes::<Outcome>(&bytes).unwrap(), outcome);
        }
    }
}
