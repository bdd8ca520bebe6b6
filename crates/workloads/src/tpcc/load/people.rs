//! Customers and what they have ordered and paid (clause 4.3.3.1).

use super::{Batch, LoadError, Loader, Part};
use crate::{
    random::Selection,
    row::{Row, Text},
    tpcc::{
        population::{DISTRICTS, MOST_LINES},
        rows::{Customer, CustomerData, History, NewOrderRow, Order, OrderLine},
        text::{digits, last_name, letters, state, zip},
    },
};

/// The first customers of a district bear the last names 0 to 999, one each.
const NAMES: u32 = 1_000;

impl Loader<'_> {
    pub(super) fn customers(&self, batch: &mut Batch<'_, '_>, warehouse: u16) -> Result<(), LoadError> {
        for district in 1..=DISTRICTS {
            self.customers_of(batch, warehouse, district)?;
        }
        Ok(())
    }

    fn customers_of(&self, batch: &mut Batch<'_, '_>, warehouse: u16, district: u8) -> Result<(), LoadError> {
        let customers = self.population.scale.customers;
        let constants = self.population.constants();
        let random = &mut self.random(Part::Customers, warehouse, district);
        let mut bad_credit = Selection::new(u64::from(customers) / 10, customers.into());
        for id in 1..=customers {
            let last = if id <= NAMES { last_name(id as u16 - 1) } else { constants.last_name(random, customers) };
            let credit = if bad_credit.next(random) { *b"BC" } else { *b"GC" };
            let row = Row::new()
                .with(Customer::W_ID, warehouse)
                .with(Customer::D_ID, district)
                .with(Customer::ID, id)
                .with(Customer::FIRST, letters(random, 8))
                .with(Customer::MIDDLE, Text(*b"OE"))
                .with(Customer::LAST, last)
                .with(Customer::STREET_1, letters(random, 10))
                .with(Customer::STREET_2, letters(random, 10))
                .with(Customer::CITY, letters(random, 10))
                .with(Customer::STATE, state(random))
                .with(Customer::ZIP, zip(random))
                .with(Customer::PHONE, digits(random))
                .with(Customer::SINCE, self.population.loaded_at)
                .with(Customer::CREDIT, Text(credit))
                .with(Customer::CREDIT_LIMIT, 5_000_000)
                .with(Customer::DISCOUNT, random.within(0, 5_000) as u16)
                .with(Customer::BALANCE, -1_000)
                .with(Customer::YTD_PAYMENT, 1_000)
                .with(Customer::PAYMENT_COUNT, 1)
                .with(Customer::DELIVERY_COUNT, 0);
            batch.insert(&self.tables.customer, &row)?;
            let row = Row::new()
                .with(CustomerData::W_ID, warehouse)
                .with(CustomerData::D_ID, district)
                .with(CustomerData::ID, id)
                .with(CustomerData::DATA, letters(random, 300));
            batch.insert(&self.tables.customer_data, &row)?;
            let row = Row::new()
                .with(History::W_ID, warehouse)
                .with(History::D_ID, district)
                .with(History::DATE, self.population.loaded_at)
                .with(History::C_W_ID, warehouse)
                .with(History::C_D_ID, district)
                .with(History::C_ID, id)
                .with(History::PAYMENT_COUNT, 1)
                .with(History::AMOUNT, 1_000)
                .with(History::DATA, letters(random, 12));
            batch.insert(&self.tables.history, &row)?;
        }
        Ok(())
    }

    pub(super) fn orders(&self, batch: &mut Batch<'_, '_>, warehouse: u16) -> Result<(), LoadError> {
        for district in 1..=DISTRICTS {
            self.orders_of(batch, warehouse, district)?;
        }
        Ok(())
    }

    fn orders_of(&self, batch: &mut Batch<'_, '_>, warehouse: u16, district: u8) -> Result<(), LoadError> {
        let scale = self.population.scale;
        let random = &mut self.random(Part::Orders, warehouse, district);
        // O_C_ID: every customer once, in any order.
        let mut customers: Vec<u32> = (1..=scale.customers).collect();
        random.shuffle(&mut customers);
        for (id, customer) in (1..).zip(customers) {
            let delivered = id < scale.first_undelivered();
            let lines = random.within(5, MOST_LINES as u64) as u8;
            let row = Row::new()
                .with(Order::W_ID, warehouse)
                .with(Order::D_ID, district)
                .with(Order::ID, id)
                .with(Order::C_ID, customer)
                .with(Order::ENTRY_D, self.population.loaded_at)
                .with(Order::CARRIER_ID, if delivered { random.within(1, 10) as u8 } else { 0 })
                .with(Order::LINE_COUNT, lines)
                .with(Order::ALL_LOCAL, 1);
            batch.insert(&self.tables.orders, &row)?;
            for number in 1..=lines {
                let row = Row::new()
                    .with(OrderLine::W_ID, warehouse)
                    .with(OrderLine::D_ID, district)
                    .with(OrderLine::O_ID, id)
                    .with(OrderLine::NUMBER, number)
                    .with(OrderLine::I_ID, random.within(1, scale.items.into()) as u32)
                    .with(OrderLine::SUPPLY_W_ID, warehouse)
                    .with(OrderLine::DELIVERY_D, if delivered { self.population.loaded_at } else { 0 })
                    .with(OrderLine::QUANTITY, 5)
                    .with(OrderLine::AMOUNT, if delivered { 0 } else { random.within(1, 999_999) as i32 })
                    .with(OrderLine::DIST_INFO, letters(random, 24));
                batch.insert(&self.tables.order_line, &row)?;
            }
            if !delivered {
                let row = Row::new()
                    .with(NewOrderRow::W_ID, warehouse)
                    .with(NewOrderRow::D_ID, district)
                    .with(NewOrderRow::O_ID, id);
                batch.insert(&self.tables.new_order, &row)?;
            }
        }
        Ok(())
    }
}
