//! What the conditions are about, collected in one pass over each table.

use std::{collections::HashMap, ops::ControlFlow};

use crate::{
    engine::{ProcedureError, Transaction},
    tpcc::{
        population::Population,
        rows::{Customer, District, History, NewOrderRow, Order, OrderLine, Warehouse},
        tables::Tables,
    },
};

/// A warehouse and what belongs to it.
#[derive(Default)]
pub(super) struct WarehouseFacts {
    /// W_YTD, if there is such a warehouse.
    pub(super) ytd: Option<i64>,
    /// Sum of D_YTD.
    pub(super) districts: i64,
    /// Sum of H_AMOUNT paid there.
    pub(super) history: i64,
}

/// A district and what belongs to it.
#[derive(Default)]
pub(super) struct DistrictFacts {
    /// D_NEXT_O_ID, if there is such a district.
    pub(super) next_order: Option<u32>,
    /// D_YTD.
    pub(super) ytd: i64,
    /// Sum of H_AMOUNT paid there.
    pub(super) history: i64,
    /// Rows of ORDER.
    pub(super) orders: u64,
    /// Largest O_ID.
    pub(super) last_order: u32,
    /// Sum of O_OL_CNT.
    pub(super) lines_promised: u64,
    /// Rows of ORDER-LINE.
    pub(super) lines: u64,
    /// Rows of NEW-ORDER.
    pub(super) new_orders: u64,
    /// Smallest and largest NO_O_ID, if there is any.
    pub(super) new_range: Option<(u32, u32)>,
    /// Rows of CUSTOMER.
    pub(super) customers: u64,
    /// Sum of C_DELIVERY_CNT.
    pub(super) deliveries: u64,
}

/// A customer and what belongs to him.
#[derive(Default)]
pub(super) struct CustomerFacts {
    /// C_BALANCE and C_YTD_PAYMENT, if there is such a customer.
    pub(super) account: Option<(i64, i64)>,
    /// Sum of OL_AMOUNT of what was delivered.
    pub(super) delivered: i64,
    /// Sum of H_AMOUNT paid by him.
    pub(super) paid: i64,
}

/// An order and its lines.
pub(super) struct OrderFacts {
    pub(super) key: OrderKey,
    /// O_C_ID.
    pub(super) customer: u32,
    /// O_OL_CNT.
    pub(super) lines_promised: u8,
    /// Whether O_CARRIER_ID is set.
    pub(super) has_carrier: bool,
    /// Whether there is a row in NEW-ORDER.
    pub(super) is_new: bool,
    /// Rows of ORDER-LINE.
    pub(super) lines: u32,
    /// How many of them have OL_DELIVERY_D set.
    pub(super) lines_delivered: u32,
}

/// Warehouse, district, order: in the order of the primary key.
pub(super) type OrderKey = (u16, u8, u32);

/// Everything that the conditions are about.
pub(super) struct Facts {
    pub(super) population: Population,
    pub(super) warehouses: HashMap<u16, WarehouseFacts>,
    pub(super) districts: HashMap<(u16, u8), DistrictFacts>,
    pub(super) customers: HashMap<OrderKey, CustomerFacts>,
    /// In the order of their keys.
    pub(super) orders: Vec<OrderFacts>,
    /// Rows of NEW-ORDER that have no order.
    pub(super) new_without_order: Vec<OrderKey>,
    /// Orders that have lines but no row in ORDER.
    pub(super) lines_without_order: Vec<OrderKey>,
}

impl Facts {
    /// Reads all tables but ITEM and STOCK, which no condition mentions.
    pub(super) fn collect(txn: &Transaction<'_>, tables: &Tables) -> Result<Self, ProcedureError> {
        let mut facts = Self {
            population: tables.population(txn)?,
            warehouses: HashMap::new(),
            districts: HashMap::new(),
            customers: HashMap::new(),
            orders: Vec::new(),
            new_without_order: Vec::new(),
            lines_without_order: Vec::new(),
        };
        facts.warehouses_and_districts(txn, tables)?;
        facts.customers_and_history(txn, tables)?;
        facts.orders(txn, tables)?;
        facts.order_lines(txn, tables)?;
        Ok(facts)
    }

    fn warehouses_and_districts(&mut self, txn: &Transaction<'_>, tables: &Tables) -> Result<(), ProcedureError> {
        tables.warehouse.scan_all(txn, |found| {
            let warehouse = self.warehouses.entry(found.row.get(Warehouse::ID)).or_default();
            warehouse.ytd = Some(found.row.get(Warehouse::YTD));
        })?;
        tables.district.scan_all(txn, |found| {
            let (w, d) = (found.row.get(District::W_ID), found.row.get(District::ID));
            let ytd = found.row.get(District::YTD);
            add(&mut self.warehouses.entry(w).or_default().districts, ytd);
            let district = self.districts.entry((w, d)).or_default();
            district.ytd = ytd;
            district.next_order = Some(found.row.get(District::NEXT_O_ID));
        })
    }

    fn customers_and_history(&mut self, txn: &Transaction<'_>, tables: &Tables) -> Result<(), ProcedureError> {
        tables.customer.scan_all(txn, |found| {
            let (w, d) = (found.row.get(Customer::W_ID), found.row.get(Customer::D_ID));
            let district = self.districts.entry((w, d)).or_default();
            district.customers += 1;
            district.deliveries += u64::from(found.row.get(Customer::DELIVERY_COUNT));
            let customer = self.customers.entry((w, d, found.row.get(Customer::ID))).or_default();
            customer.account = Some((found.row.get(Customer::BALANCE), found.row.get(Customer::YTD_PAYMENT)));
        })?;
        tables.history.scan_all(txn, |found| {
            let (w, d) = (found.row.get(History::W_ID), found.row.get(History::D_ID));
            let payer = (found.row.get(History::C_W_ID), found.row.get(History::C_D_ID), found.row.get(History::C_ID));
            let amount = i64::from(found.row.get(History::AMOUNT));
            add(&mut self.warehouses.entry(w).or_default().history, amount);
            add(&mut self.districts.entry((w, d)).or_default().history, amount);
            add(&mut self.customers.entry(payer).or_default().paid, amount);
        })
    }

    /// New orders first, then orders in the same order: the two run side by side.
    fn orders(&mut self, txn: &Transaction<'_>, tables: &Tables) -> Result<(), ProcedureError> {
        let mut pending: Vec<OrderKey> = Vec::new();
        tables.new_order.scan_all(txn, |found| {
            let (w, d) = (found.row.get(NewOrderRow::W_ID), found.row.get(NewOrderRow::D_ID));
            let order = found.row.get(NewOrderRow::O_ID);
            pending.push((w, d, order));
            let district = self.districts.entry((w, d)).or_default();
            district.new_orders += 1;
            let (low, high) = district.new_range.get_or_insert((order, order));
            (*low, *high) = ((*low).min(order), (*high).max(order));
        })?;
        let mut pending = pending.into_iter().peekable();
        let (orders, districts, without) = (&mut self.orders, &mut self.districts, &mut self.new_without_order);
        tables.orders.scan_all(txn, |found| {
            let key = (found.row.get(Order::W_ID), found.row.get(Order::D_ID), found.row.get(Order::ID));
            while let Some(passed) = pending.next_if(|pending| *pending < key) {
                without.push(passed);
            }
            let is_new = pending.next_if_eq(&key).is_some();
            let lines_promised = found.row.get(Order::LINE_COUNT);
            let district = districts.entry((key.0, key.1)).or_default();
            district.orders += 1;
            district.last_order = district.last_order.max(key.2);
            district.lines_promised += u64::from(lines_promised);
            orders.push(OrderFacts {
                key,
                customer: found.row.get(Order::C_ID),
                lines_promised,
                has_carrier: found.row.get(Order::CARRIER_ID) != 0,
                is_new,
                lines: 0,
                lines_delivered: 0,
            });
        })?;
        self.new_without_order.extend(pending);
        Ok(())
    }

    /// Order lines come in the order of the orders.
    fn order_lines(&mut self, txn: &Transaction<'_>, tables: &Tables) -> Result<(), ProcedureError> {
        let mut at = 0;
        let (orders, customers) = (&mut self.orders, &mut self.customers);
        let (districts, without) = (&mut self.districts, &mut self.lines_without_order);
        // What the lines of the present order add to its customer and its district.
        let mut sum = 0i64;
        let mut settle = |order: &OrderFacts, sum: &mut i64| {
            let (w, d, _) = order.key;
            districts.entry((w, d)).or_default().lines += u64::from(order.lines);
            add(&mut customers.entry((w, d, order.customer)).or_default().delivered, std::mem::take(sum));
        };
        let mut orphans: HashMap<(u16, u8), u64> = HashMap::new();
        tables.order_line.scan(txn, 0, crate::table::ALL, crate::engine::Direction::Forward, |found| {
            let (w, d) = (found.row.get(OrderLine::W_ID), found.row.get(OrderLine::D_ID));
            let key = (w, d, found.row.get(OrderLine::O_ID));
            while let Some(order) = orders.get(at).filter(|order| order.key < key) {
                settle(order, &mut sum);
                at += 1;
            }
            match orders.get_mut(at).filter(|order| order.key == key) {
                Some(order) => {
                    order.lines += 1;
                    if found.row.get(OrderLine::DELIVERY_D) != 0 {
                        order.lines_delivered += 1;
                        add(&mut sum, i64::from(found.row.get(OrderLine::AMOUNT)));
                    }
                }
                None => {
                    *orphans.entry((w, d)).or_default() += 1;
                    if without.last() != Some(&key) {
                        without.push(key);
                    }
                }
            }
            ControlFlow::Continue(())
        })?;
        for order in &orders[at.min(orders.len())..] {
            settle(order, &mut sum);
        }
        for (district, lines) in orphans {
            self.districts.entry(district).or_default().lines += lines;
        }
        Ok(())
    }
}

/// A damaged database may hold any number: sums wrap around instead of failing.
fn add(sum: &mut i64, amount: i64) {
    *sum = sum.wrapping_add(amount);
}
