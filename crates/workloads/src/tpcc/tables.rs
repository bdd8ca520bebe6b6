//! The tables with their indexes.

use super::{
    population::{Population, Scale},
    rows::{
        Customer, CustomerData, District, History, Item, NewOrderRow, Order, OrderLine, PopulationRow, Stock,
        StockData, Warehouse,
    },
};
use crate::{
    engine::{ProcedureError, TableDefinition, Transaction},
    journal::{self, JournalRow},
    table::{FindTable, NoTable, TableSet, Typed, definition, part},
};

/// Number of `customer`'s index by name.
pub(crate) const BY_NAME: usize = 1;
/// Number of `orders`' index by customer.
pub(crate) const BY_CUSTOMER: usize = 1;

/// Handles on all tables of TPC-C. Cheap to clone.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "each is the table of its row's documentation")]
pub struct Tables {
    pub warehouse: Typed<Warehouse>,
    pub district: Typed<District>,
    pub customer: Typed<Customer>,
    pub customer_data: Typed<CustomerData>,
    pub history: Typed<History>,
    pub new_order: Typed<NewOrderRow>,
    pub orders: Typed<Order>,
    pub order_line: Typed<OrderLine>,
    pub item: Typed<Item>,
    pub stock: Typed<Stock>,
    pub stock_data: Typed<StockData>,
    pub population: Typed<PopulationRow>,
    pub journal: Typed<JournalRow>,
}

impl TableSet for Tables {
    fn definitions() -> Vec<TableDefinition> {
        let customer_district = part(Customer::W_ID, Customer::D_ID);
        let customer_name = part(Customer::LAST, Customer::FIRST);
        let order_district = part(Order::W_ID, Order::D_ID);
        let order_customer = part(Order::C_ID, Order::C_ID);
        let order_number = part(Order::ID, Order::ID);
        vec![
            definition::<Warehouse>(part(Warehouse::ID, Warehouse::ID), &[]),
            definition::<District>(part(District::W_ID, District::ID), &[]),
            definition::<Customer>(
                part(Customer::W_ID, Customer::ID),
                &[("name", &[customer_district, customer_name])],
            ),
            definition::<CustomerData>(part(CustomerData::W_ID, CustomerData::ID), &[]),
            definition::<History>(part(History::W_ID, History::PAYMENT_COUNT), &[]),
            definition::<NewOrderRow>(part(NewOrderRow::W_ID, NewOrderRow::O_ID), &[]),
            definition::<Order>(
                part(Order::W_ID, Order::ID),
                &[("customer", &[order_district, order_customer, order_number])],
            ),
            definition::<OrderLine>(part(OrderLine::W_ID, OrderLine::NUMBER), &[]),
            definition::<Item>(part(Item::ID, Item::ID), &[]),
            definition::<Stock>(part(Stock::W_ID, Stock::I_ID), &[]),
            definition::<StockData>(part(StockData::W_ID, StockData::I_ID), &[]),
            definition::<PopulationRow>(part(PopulationRow::ID, PopulationRow::ID), &[]),
            journal::definition(),
        ]
    }

    fn open(database: &dyn FindTable) -> Result<Self, NoTable> {
        Ok(Self {
            warehouse: Typed::open(database)?,
            district: Typed::open(database)?,
            customer: Typed::open(database)?,
            customer_data: Typed::open(database)?,
            history: Typed::open(database)?,
            new_order: Typed::open(database)?,
            orders: Typed::open(database)?,
            order_line: Typed::open(database)?,
            item: Typed::open(database)?,
            stock: Typed::open(database)?,
            stock_data: Typed::open(database)?,
            population: Typed::open(database)?,
            journal: Typed::open(database)?,
        })
    }
}

impl Tables {
    /// What was loaded.
    ///
    /// # Errors
    /// [`ProcedureError::Aborted`] when loading has not come to its end.
    pub fn population(&self, txn: &Transaction<'_>) -> Result<Population, ProcedureError> {
        let absent = "the initial population of TPC-C is not complete: load it into a fresh database";
        let row = self.population.need(txn, &[PopulationRow::ONLY], absent)?.row;
        Ok(Population {
            scale: Scale {
                warehouses: row.get(PopulationRow::WAREHOUSES),
                items: row.get(PopulationRow::ITEMS),
                customers: row.get(PopulationRow::CUSTOMERS),
                undelivered: row.get(PopulationRow::UNDELIVERED),
            },
            seed: row.get(PopulationRow::SEED),
            loaded_at: row.get(PopulationRow::LOADED_AT),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        row::{Layout, Row, Text},
        tpcc::keys,
    };

    /// The key that index number `index` of the table of `row` computes.
    fn key<L: Layout>(index: usize, row: &Row<L>) -> Vec<u8> {
        let definition = Tables::definitions().into_iter().find(|definition| definition.name == L::NAME).unwrap();
        definition.validate().unwrap();
        let mut buffer = freshet_storage::KeyBuffer::new();
        definition.indexes[index].key_of(row.bytes(), &mut buffer).to_vec()
    }

    #[test]
    fn keys_are_what_the_indexes_compute() {
        let (w, d, c, o, n, i) = (0x0102, 3, 0x0405_0607, 0x0809_0a0b, 12, 0x0d0e_0f10);
        assert_eq!(key(0, &Row::new().with(Warehouse::ID, w)), keys::warehouse(w));
        assert_eq!(key(0, &Row::new().with(District::W_ID, w).with(District::ID, d)), keys::district(w, d));
        let customer = Row::new()
            .with(Customer::W_ID, w)
            .with(Customer::D_ID, d)
            .with(Customer::ID, c)
            .with(Customer::FIRST, Text::new(b"Anna"))
            .with(Customer::LAST, Text::new(b"PRIBARESE"));
        assert_eq!(key(0, &customer), keys::customer(w, d, c));
        let (low, high) = keys::customers_named(w, d, Text::new(b"PRIBARESE"));
        assert!((low.as_slice()..=high.as_slice()).contains(&key(1, &customer).as_slice()));
        for other in [b"PRIBARES".as_slice(), b"PRIBARESEE"] {
            let (low, high) = keys::customers_named(w, d, Text::new(other));
            assert!(!(low.as_slice()..=high.as_slice()).contains(&key(1, &customer).as_slice()));
        }
        let data = Row::new().with(CustomerData::W_ID, w).with(CustomerData::D_ID, d).with(CustomerData::ID, c);
        assert_eq!(key(0, &data), keys::customer(w, d, c));
        let new_order = Row::new().with(NewOrderRow::W_ID, w).with(NewOrderRow::D_ID, d).with(NewOrderRow::O_ID, o);
        assert_eq!(key(0, &new_order), keys::order(w, d, o));
        let order = Row::new().with(Order::W_ID, w).with(Order::D_ID, d).with(Order::ID, o).with(Order::C_ID, c);
        assert_eq!(key(0, &order), keys::order(w, d, o));
        assert_eq!(key(1, &order), keys::order_of_customer(w, d, c, o));
        let line = Row::new()
            .with(OrderLine::W_ID, w)
            .with(OrderLine::D_ID, d)
            .with(OrderLine::O_ID, o)
            .with(OrderLine::NUMBER, n);
        assert_eq!(key(0, &line), keys::order_line(w, d, o, n));
        assert_eq!(key(0, &Row::new().with(Item::ID, i)), keys::item(i));
        assert_eq!(key(0, &Row::new().with(Stock::W_ID, w).with(Stock::I_ID, i)), keys::stock(w, i));
        assert_eq!(key(0, &Row::new().with(StockData::W_ID, w).with(StockData::I_ID, i)), keys::stock(w, i));
        assert_eq!(key(0, &Row::new().with(History::W_ID, w)).len(), 22);
    }
}
