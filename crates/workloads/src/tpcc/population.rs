//! How much data there is, and what belongs to it.

use serde::{Deserialize, Serialize};

use super::text::Constants;

/// Districts of a warehouse: S_DIST_01 to S_DIST_10 leave no choice.
pub const DISTRICTS: u8 = 10;

/// The most lines that an order can have (clause 2.4.1.3).
pub const MOST_LINES: usize = 15;

/// The size of the database (clause 1.2.1). [`Scale::new`] is the
/// specification's; smaller ones are for tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    /// Warehouses: the one number that the specification leaves open.
    pub warehouses: u16,
    /// Items, each in stock at every warehouse. Specification: 100,000.
    pub items: u32,
    /// Customers of each district, and its initial orders too: one for each
    /// customer. Specification: 3,000.
    pub customers: u32,
    /// Initial orders of each district that are not delivered. Specification: 900.
    pub undelivered: u32,
}

/// A [`Scale`] that cannot be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongScale {
    /// There is nothing to load.
    #[error("TPC-C needs at least one warehouse, one item and one customer for each district")]
    Empty,
    /// More undelivered orders than orders.
    #[error("{undelivered} undelivered orders are more than the {orders} orders of a district")]
    Undelivered {
        /// How many were asked for.
        undelivered: u32,
        /// How many orders there are.
        orders: u32,
    },
}

impl Scale {
    /// The specification's size for `warehouses`.
    pub const fn new(warehouses: u16) -> Self {
        Self { warehouses, items: 100_000, customers: 3_000, undelivered: 900 }
    }

    /// A small database that keeps the proportions, for tests: about 1 % of the specification's.
    pub const fn small(warehouses: u16) -> Self {
        Self { warehouses, items: 1_000, customers: 30, undelivered: 9 }
    }

    /// Whether it can be loaded.
    ///
    /// # Errors
    /// [`WrongScale`] says why not.
    pub fn check(&self) -> Result<(), WrongScale> {
        if self.warehouses == 0 || self.items == 0 || self.customers == 0 {
            return Err(WrongScale::Empty);
        }
        if self.undelivered > self.customers {
            return Err(WrongScale::Undelivered { undelivered: self.undelivered, orders: self.customers });
        }
        Ok(())
    }

    /// The first order of a district that was not delivered when the database was populated.
    pub const fn first_undelivered(&self) -> u32 {
        self.customers - self.undelivered + 1
    }

    /// Initial rows of one warehouse, order lines counted by their mean number;
    /// for showing progress.
    pub fn rows_per_warehouse(&self) -> u64 {
        let customers = u64::from(DISTRICTS) * u64::from(self.customers);
        // customer, customer_data, history, orders and ten order lines on average.
        let of_customers = customers * 14;
        1 + u64::from(DISTRICTS)
            + 2 * u64::from(self.items)
            + of_customers
            + u64::from(DISTRICTS) * u64::from(self.undelivered)
    }
}

/// An initial population: the same values give the same rows, on every machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Population {
    /// Its size.
    pub scale: Scale,
    /// The seed of its random numbers.
    pub seed: u64,
    /// The time that its rows bear (C_SINCE, H_DATE, O_ENTRY_D), in microseconds since 1970.
    pub loaded_at: u64,
}

impl Population {
    /// NURand's constants of the load (clause 2.1.6.1).
    pub fn constants(&self) -> Constants {
        Constants::of_load(self.seed)
    }
}
