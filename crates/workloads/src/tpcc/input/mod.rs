//! What a transaction is told: the input data of clauses 2.4.1 to 2.8.1, and
//! the terminals that make it up.
//!
//! A transaction's effect is a function of its input and the database. So times come with the
//! input, although clauses 2.4.1.6, 2.5.1.4 and 2.7.1.3 have the system take them: the caller that
//! makes up the input reads the clock.

mod written;

use std::fmt;

use serde::{Deserialize, Serialize};

use self::written::WrittenOrder;
use super::{
    population::{DISTRICTS, MOST_LINES, Population, Scale},
    text::Constants,
};
use crate::{journal::Mark, list::List, random::Random, row::Text};

/// The five transactions, and the one that TPC-C+ adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Clause 2.4.
    NewOrder,
    /// Clause 2.5.
    Payment,
    /// Clause 2.6.
    OrderStatus,
    /// Clause 2.7.
    Delivery,
    /// Clause 2.8.
    StockLevel,
    /// Of TPC-C+: Cahill, Röhm, Fekete (2008), section 5.3.
    CreditCheck,
}

impl Kind {
    /// All, in the order of the specification.
    pub const ALL: [Self; 6] =
        [Self::NewOrder, Self::Payment, Self::OrderStatus, Self::Delivery, Self::StockLevel, Self::CreditCheck];

    /// Its share of a mix in percent.
    pub const fn percent(self, mix: Mix) -> u64 {
        match (self, mix) {
            (Self::NewOrder, Mix::Standard) => 45,
            (Self::NewOrder, Mix::Plus) => 41,
            (Self::Payment, _) => 43,
            (Self::CreditCheck, Mix::Standard) => 0,
            (Self::OrderStatus | Self::Delivery | Self::StockLevel | Self::CreditCheck, _) => 4,
        }
    }

    /// Whether it changes nothing.
    pub const fn is_read_only(self) -> bool {
        matches!(self, Self::OrderStatus | Self::StockLevel)
    }

    fn draw(random: &mut Random, mix: Mix) -> Self {
        let mut left = random.below(100);
        for kind in Self::ALL {
            if left < kind.percent(mix) {
                return kind;
            }
            left -= kind.percent(mix);
        }
        unreachable!("the shares of the mix add up to 100 percent")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NewOrder => "new-order",
            Self::Payment => "payment",
            Self::OrderStatus => "order-status",
            Self::Delivery => "delivery",
            Self::StockLevel => "stock-level",
            Self::CreditCheck => "credit-check",
        })
    }
}

/// Which transactions come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mix {
    /// Those of the specification (clause 5.2.3; New-Order takes the rest).
    #[default]
    Standard,
    /// TPC-C+: of 100 transactions four are Credit-Checks, in the place of New-Orders
    /// (Record-Replay, section 6.1).
    Plus,
}

/// What a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// With it, a transaction that changes the database also writes this into the journal.
    pub mark: Option<Mark>,
    /// The transaction.
    pub input: Input,
}

/// A transaction and its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Input {
    /// Clause 2.4.
    NewOrder(NewOrder),
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

impl Input {
    /// Which transaction it is for.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::NewOrder(_) => Kind::NewOrder,
            Self::Payment(_) => Kind::Payment,
            Self::OrderStatus(_) => Kind::OrderStatus,
            Self::Delivery(_) => Kind::Delivery,
            Self::StockLevel(_) => Kind::StockLevel,
            Self::CreditCheck(_) => Kind::CreditCheck,
        }
    }

    /// W_ID of the terminal.
    pub const fn warehouse(&self) -> u16 {
        match self {
            Self::NewOrder(input) => input.warehouse,
            Self::Payment(input) => input.warehouse,
            Self::OrderStatus(input) => input.warehouse,
            Self::Delivery(input) => input.warehouse,
            Self::StockLevel(input) => input.warehouse,
            Self::CreditCheck(input) => input.warehouse,
        }
    }
}

/// One line of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// OL_I_ID.
    pub item: u32,
    /// OL_SUPPLY_W_ID.
    pub supply_warehouse: u16,
    /// OL_QUANTITY.
    pub quantity: u8,
}

/// Clause 2.4.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "WrittenOrder", into = "WrittenOrder")]
pub struct NewOrder {
    /// W_ID.
    pub warehouse: u16,
    /// D_ID.
    pub district: u8,
    /// C_ID.
    pub customer: u32,
    /// O_ENTRY_D, in microseconds since 1970.
    pub entered_at: u64,
    /// The items. One of 100 orders ends with an item that does not exist.
    pub lines: List<Line, MOST_LINES>,
}

/// How a customer says who he is (clauses 2.5.1.2 and 2.6.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Customer {
    /// By C_ID.
    Number(u32),
    /// By C_LAST.
    LastName(Text<16>),
}

/// Clause 2.5.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Payment {
    /// W_ID: where is paid.
    pub warehouse: u16,
    /// D_ID.
    pub district: u8,
    /// C_W_ID: where the customer belongs.
    pub customer_warehouse: u16,
    /// C_D_ID.
    pub customer_district: u8,
    /// Who pays.
    pub customer: Customer,
    /// H_AMOUNT, in cents.
    pub amount: i32,
    /// H_DATE, in microseconds since 1970.
    pub paid_at: u64,
}

/// Clause 2.6.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderStatus {
    /// W_ID.
    pub warehouse: u16,
    /// D_ID.
    pub district: u8,
    /// Who asks.
    pub customer: Customer,
}

/// Clause 2.7.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// W_ID.
    pub warehouse: u16,
    /// O_CARRIER_ID.
    pub carrier: u8,
    /// OL_DELIVERY_D, in microseconds since 1970.
    pub delivered_at: u64,
}

/// Clause 2.8.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StockLevel {
    /// W_ID.
    pub warehouse: u16,
    /// D_ID.
    pub district: u8,
    /// Stock below this is low.
    pub threshold: i16,
}

/// Of TPC-C+: whose credit is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreditCheck {
    /// C_W_ID.
    pub warehouse: u16,
    /// C_D_ID.
    pub district: u8,
    /// C_ID.
    pub customer: u32,
}

/// One terminal: it belongs to a warehouse and one of its districts (clause
/// 2.8.1.1) and makes up what its user types in.
#[derive(Clone, Debug)]
pub struct Terminal {
    random: Random,
    scale: Scale,
    constants: Constants,
    warehouse: u16,
    district: u8,
    mix: Mix,
    spread: bool,
}

impl Terminal {
    /// The terminal number `number` (from 0), at home in warehouse `warehouse`. Terminals of one
    /// run share `constants` and the seed. Who gives them homes in turn, `number % warehouses + 1`,
    /// has up to ten terminals in each warehouse, each with a district of its own (clause 2.8.1.1).
    ///
    /// # Panics
    /// When the population has no such warehouse.
    pub fn new(population: &Population, constants: Constants, seed: u64, number: u64, warehouse: u16) -> Self {
        assert!(
            (1..=population.scale.warehouses).contains(&warehouse),
            "warehouse {warehouse} is not one of the {} that were loaded",
            population.scale.warehouses
        );
        Self {
            random: Random::stream(seed, number),
            scale: population.scale,
            constants,
            warehouse,
            district: (number / u64::from(population.scale.warehouses) % u64::from(DISTRICTS)) as u8 + 1,
            mix: Mix::Standard,
            spread: false,
        }
    }

    /// The same terminal, whose user never asks for another warehouse than its home: no remote
    /// transactions (Query Fresh, section 4.3).
    #[must_use]
    pub fn at_home(mut self) -> Self {
        self.scale.warehouses = 1;
        self
    }

    /// The same terminal with another mix.
    #[must_use]
    pub fn with_mix(mut self, mix: Mix) -> Self {
        self.mix = mix;
        self
    }

    /// The same terminal, but for each transaction it is at home in another warehouse and district,
    /// each as likely as any other: nothing that it does stays near what it has done
    /// (Record-Replay, section 6.1, "spread").
    #[must_use]
    pub fn spread(mut self) -> Self {
        self.spread = true;
        self
    }

    /// Its home warehouse.
    pub fn warehouse(&self) -> u16 {
        self.warehouse
    }

    /// The next transaction of the mix, at the time `now` in microseconds since 1970.
    pub fn next(&mut self, now: u64) -> Input {
        let kind = Kind::draw(&mut self.random, self.mix);
        self.next_of(kind, now)
    }

    /// The next transaction when it has to be of one kind.
    pub fn next_of(&mut self, kind: Kind, now: u64) -> Input {
        if self.spread {
            self.warehouse = self.random.within(1, u64::from(self.scale.warehouses)) as u16;
            self.district = self.random.within(1, u64::from(DISTRICTS)) as u8;
        }
        match kind {
            Kind::NewOrder => Input::NewOrder(self.new_order(now)),
            Kind::Payment => Input::Payment(self.payment(now)),
            Kind::OrderStatus => Input::OrderStatus(self.order_status()),
            Kind::Delivery => Input::Delivery(self.delivery(now)),
            Kind::StockLevel => Input::StockLevel(self.stock_level()),
            Kind::CreditCheck => Input::CreditCheck(self.credit_check()),
        }
    }

    /// Clause 2.4.1.
    fn new_order(&mut self, now: u64) -> NewOrder {
        let random = &mut self.random;
        let district = random.within(1, u64::from(DISTRICTS)) as u8;
        let customer = self.constants.customer(random, self.scale.customers);
        let count = random.within(5, MOST_LINES as u64);
        let rolled_back = random.within(1, 100) == 1;
        let mut lines = List::new();
        for number in 1..=count {
            let item = if rolled_back && number == count {
                // An unused number (clause 2.4.1.5).
                self.scale.items + 1
            } else {
                self.constants.item(random, self.scale.items)
            };
            let remote = random.within(1, 100) == 1;
            let supply_warehouse =
                if remote { another_warehouse(random, self.warehouse, self.scale.warehouses) } else { self.warehouse };
            let quantity = random.within(1, 10) as u8;
            let fits = lines.push(Line { item, supply_warehouse, quantity });
            debug_assert!(fits, "an order has at most {MOST_LINES} lines");
        }
        NewOrder { warehouse: self.warehouse, district, customer, entered_at: now, lines }
    }

    /// Clause 2.5.1. With a single warehouse every customer belongs to it, if not to the same
    /// district.
    fn payment(&mut self, now: u64) -> Payment {
        let random = &mut self.random;
        let district = random.within(1, u64::from(DISTRICTS)) as u8;
        let remote = random.within(1, 100) > 85;
        let (customer_warehouse, customer_district) = if remote {
            let warehouse = another_warehouse(random, self.warehouse, self.scale.warehouses);
            (warehouse, random.within(1, u64::from(DISTRICTS)) as u8)
        } else {
            (self.warehouse, district)
        };
        let customer = self.customer();
        Payment {
            warehouse: self.warehouse,
            district,
            customer_warehouse,
            customer_district,
            customer,
            amount: self.random.within(100, 500_000) as i32,
            paid_at: now,
        }
    }

    /// Clause 2.6.1.
    fn order_status(&mut self) -> OrderStatus {
        let district = self.random.within(1, u64::from(DISTRICTS)) as u8;
        OrderStatus { warehouse: self.warehouse, district, customer: self.customer() }
    }

    /// Clause 2.7.1.
    fn delivery(&mut self, now: u64) -> Delivery {
        Delivery { warehouse: self.warehouse, carrier: self.random.within(1, 10) as u8, delivered_at: now }
    }

    /// Clause 2.8.1.
    fn stock_level(&mut self) -> StockLevel {
        let threshold = self.random.within(10, 20) as i16;
        StockLevel { warehouse: self.warehouse, district: self.district, threshold }
    }

    /// Of TPC-C+: the customer is drawn as New-Order's is.
    fn credit_check(&mut self) -> CreditCheck {
        let district = self.random.within(1, u64::from(DISTRICTS)) as u8;
        let customer = self.constants.customer(&mut self.random, self.scale.customers);
        CreditCheck { warehouse: self.warehouse, district, customer }
    }

    /// 60 of 100 by their last name (clauses 2.5.1.2 and 2.6.1.2).
    fn customer(&mut self) -> Customer {
        let random = &mut self.random;
        if random.within(1, 100) <= 60 {
            Customer::LastName(self.constants.last_name(random, self.scale.customers))
        } else {
            Customer::Number(self.constants.customer(random, self.scale.customers))
        }
    }
}

/// A warehouse other than `home`, or `home` where it is the only one.
fn another_warehouse(random: &mut Random, home: u16, warehouses: u16) -> u16 {
    if warehouses == 1 {
        return home;
    }
    let other = random.within(1, u64::from(warehouses) - 1) as u16;
    if other < home { other } else { other + 1 }
}

#[cfg(test)]
mod tests;
