//! Items, warehouses with their districts, stock (clause 4.3.3.1).

use super::{Batch, LoadError, Loader, Part};
use crate::{
    engine::Worker,
    random::{Random, Selection},
    row::{Row, Text},
    tpcc::{
        population::DISTRICTS,
        rows::{District, Item, Stock, StockData, Warehouse},
        text::{letters, make_original, state, zip},
    },
};

/// W_YTD of a fresh warehouse for each of its customers, in cents: 300,000.00 for 10 * 3,000.
const YTD_PER_CUSTOMER: i64 = 1_000;

/// I_DATA or S_DATA: 26 to 50 characters, with ORIGINAL in one of ten.
fn data(random: &mut Random, originals: &mut Selection) -> Text<50> {
    let mut data = letters(random, 26);
    if originals.next(random) {
        make_original(random, &mut data);
    }
    data
}

impl Loader<'_> {
    pub(super) fn items(&self, worker: &Worker) -> Result<(), LoadError> {
        let items = self.population.scale.items;
        let random = &mut self.random(Part::Items, 0, 0);
        let mut originals = Selection::new(u64::from(items) / 10, items.into());
        let mut batch = Batch::new(worker, self.progress);
        for id in 1..=items {
            let row = Row::new()
                .with(Item::ID, id)
                .with(Item::IMAGE_ID, random.within(1, 10_000) as u32)
                .with(Item::NAME, letters(random, 14))
                .with(Item::PRICE, random.within(100, 10_000) as i32)
                .with(Item::DATA, data(random, &mut originals));
            batch.insert(&self.tables.item, &row)?;
        }
        batch.finish()?;
        Ok(())
    }

    pub(super) fn warehouse_and_districts(&self, batch: &mut Batch<'_, '_>, warehouse: u16) -> Result<(), LoadError> {
        let random = &mut self.random(Part::Warehouse, warehouse, 0);
        let customers = self.population.scale.customers;
        let district_ytd = YTD_PER_CUSTOMER * i64::from(customers);
        let row = Row::new()
            .with(Warehouse::ID, warehouse)
            .with(Warehouse::NAME, letters(random, 6))
            .with(Warehouse::STREET_1, letters(random, 10))
            .with(Warehouse::STREET_2, letters(random, 10))
            .with(Warehouse::CITY, letters(random, 10))
            .with(Warehouse::STATE, state(random))
            .with(Warehouse::ZIP, zip(random))
            .with(Warehouse::TAX, random.within(0, 2_000) as u16)
            .with(Warehouse::YTD, i64::from(DISTRICTS) * district_ytd);
        batch.insert(&self.tables.warehouse, &row)?;
        for district in 1..=DISTRICTS {
            let row = Row::new()
                .with(District::W_ID, warehouse)
                .with(District::ID, district)
                .with(District::NAME, letters(random, 6))
                .with(District::STREET_1, letters(random, 10))
                .with(District::STREET_2, letters(random, 10))
                .with(District::CITY, letters(random, 10))
                .with(District::STATE, state(random))
                .with(District::ZIP, zip(random))
                .with(District::TAX, random.within(0, 2_000) as u16)
                .with(District::YTD, district_ytd)
                .with(District::NEXT_O_ID, customers + 1);
            batch.insert(&self.tables.district, &row)?;
        }
        Ok(())
    }

    pub(super) fn stock(&self, batch: &mut Batch<'_, '_>, warehouse: u16) -> Result<(), LoadError> {
        let items = self.population.scale.items;
        let random = &mut self.random(Part::Stock, warehouse, 0);
        let mut originals = Selection::new(u64::from(items) / 10, items.into());
        for id in 1..=items {
            let row = Row::new()
                .with(Stock::W_ID, warehouse)
                .with(Stock::I_ID, id)
                .with(Stock::QUANTITY, random.within(10, 100) as i16);
            batch.insert(&self.tables.stock, &row)?;
            let row = Row::new()
                .with(StockData::W_ID, warehouse)
                .with(StockData::I_ID, id)
                .with(StockData::DISTRICTS, letters(random, 240))
                .with(StockData::DATA, data(random, &mut originals));
            batch.insert(&self.tables.stock_data, &row)?;
        }
        Ok(())
    }
}
