//! The nine tables of clause 1.3.1, row by row.
//!
//! Two of them are partitioned vertically, which clause 1.4.5 permits: what is written often is
//! apart from what is wide and written rarely or never, as in Silo and ERMIA. STOCK is `stock` (its
//! counters) and `stock_data` (texts); CUSTOMER is `customer` and `customer_data` (C_DATA).
//! Together they hold every attribute of the specification. It is the transactions that put the
//! parts together, not the engine, as clause 1.6.1 would have it; a published result would have to
//! disclose that.
//!
//! Numbers that the specification gives with decimal places are integers in
//! their smallest unit: money in cents, taxes and discounts in ten-thousandths.
//! Times are microseconds since 1970 (UTC). Text is as wide as the
//! specification's maximum. Null is 0 where the specification has no 0: in
//! O_CARRIER_ID and OL_DELIVERY_D.

use crate::row::{Sorted, Text, layout};

layout! {
    /// WAREHOUSE: primary key (W_ID).
    Warehouse = "warehouse" {
        /// W_ID.
        ID: Sorted<u16>,
        /// W_NAME.
        NAME: Text<10>,
        /// W_STREET_1.
        STREET_1: Text<20>,
        /// W_STREET_2.
        STREET_2: Text<20>,
        /// W_CITY.
        CITY: Text<20>,
        /// W_STATE.
        STATE: Text<2>,
        /// W_ZIP.
        ZIP: Text<9>,
        /// W_TAX, in ten-thousandths.
        TAX: u16,
        /// W_YTD, in cents.
        YTD: i64,
    }
}

layout! {
    /// DISTRICT: primary key (D_W_ID, D_ID).
    District = "district" {
        /// D_W_ID.
        W_ID: Sorted<u16>,
        /// D_ID.
        ID: u8,
        /// D_NAME.
        NAME: Text<10>,
        /// D_STREET_1.
        STREET_1: Text<20>,
        /// D_STREET_2.
        STREET_2: Text<20>,
        /// D_CITY.
        CITY: Text<20>,
        /// D_STATE.
        STATE: Text<2>,
        /// D_ZIP.
        ZIP: Text<9>,
        /// D_TAX, in ten-thousandths.
        TAX: u16,
        /// D_YTD, in cents.
        YTD: i64,
        /// D_NEXT_O_ID: the next order number.
        NEXT_O_ID: u32,
    }
}

layout! {
    /// CUSTOMER without C_DATA: primary key (C_W_ID, C_D_ID, C_ID); index
    /// (C_W_ID, C_D_ID, C_LAST, C_FIRST).
    Customer = "customer" {
        /// C_W_ID.
        W_ID: Sorted<u16>,
        /// C_D_ID.
        D_ID: u8,
        /// C_ID.
        ID: Sorted<u32>,
        /// C_LAST: before C_FIRST, so that the two are one run of a key.
        LAST: Text<16>,
        /// C_FIRST.
        FIRST: Text<16>,
        /// C_MIDDLE.
        MIDDLE: Text<2>,
        /// C_STREET_1.
        STREET_1: Text<20>,
        /// C_STREET_2.
        STREET_2: Text<20>,
        /// C_CITY.
        CITY: Text<20>,
        /// C_STATE.
        STATE: Text<2>,
        /// C_ZIP.
        ZIP: Text<9>,
        /// C_PHONE.
        PHONE: Text<16>,
        /// C_SINCE.
        SINCE: u64,
        /// C_CREDIT: GC (good) or BC (bad).
        CREDIT: Text<2>,
        /// C_CREDIT_LIM, in cents.
        CREDIT_LIMIT: i64,
        /// C_DISCOUNT, in ten-thousandths.
        DISCOUNT: u16,
        /// C_BALANCE, in cents.
        BALANCE: i64,
        /// C_YTD_PAYMENT, in cents.
        YTD_PAYMENT: i64,
        /// C_PAYMENT_CNT.
        PAYMENT_COUNT: u32,
        /// C_DELIVERY_CNT.
        DELIVERY_COUNT: u32,
    }
}

layout! {
    /// CUSTOMER's C_DATA: primary key (C_W_ID, C_D_ID, C_ID).
    CustomerData = "customer_data" {
        /// C_W_ID.
        W_ID: Sorted<u16>,
        /// C_D_ID.
        D_ID: u8,
        /// C_ID.
        ID: Sorted<u32>,
        /// C_DATA.
        DATA: Text<500>,
    }
}

layout! {
    /// HISTORY. The specification gives it no primary key, the engine needs
    /// one: (H_W_ID, H_D_ID, H_DATE, H_C_W_ID, H_C_D_ID, H_C_ID, C_PAYMENT_CNT). The
    /// last is an additional column, which clause 1.4.7 permits; a customer's
    /// payments are numbered by it, so the key is unique, and payments in a district
    /// are inserted next to one another.
    History = "history" {
        /// H_W_ID.
        W_ID: Sorted<u16>,
        /// H_D_ID.
        D_ID: u8,
        /// H_DATE.
        DATE: Sorted<u64>,
        /// H_C_W_ID.
        C_W_ID: Sorted<u16>,
        /// H_C_D_ID.
        C_D_ID: u8,
        /// H_C_ID.
        C_ID: Sorted<u32>,
        /// The customer's C_PAYMENT_CNT after this payment.
        PAYMENT_COUNT: Sorted<u32>,
        /// H_AMOUNT, in cents.
        AMOUNT: i32,
        /// H_DATA.
        DATA: Text<24>,
    }
}

layout! {
    /// NEW-ORDER: primary key (NO_W_ID, NO_D_ID, NO_O_ID).
    NewOrderRow = "new_order" {
        /// NO_W_ID.
        W_ID: Sorted<u16>,
        /// NO_D_ID.
        D_ID: u8,
        /// NO_O_ID.
        O_ID: Sorted<u32>,
    }
}

layout! {
    /// ORDER: primary key (O_W_ID, O_D_ID, O_ID); index (O_W_ID, O_D_ID, O_C_ID, O_ID).
    Order = "orders" {
        /// O_W_ID.
        W_ID: Sorted<u16>,
        /// O_D_ID.
        D_ID: u8,
        /// O_ID.
        ID: Sorted<u32>,
        /// O_C_ID.
        C_ID: Sorted<u32>,
        /// O_ENTRY_D.
        ENTRY_D: u64,
        /// O_CARRIER_ID; 0 is null.
        CARRIER_ID: u8,
        /// O_OL_CNT.
        LINE_COUNT: u8,
        /// O_ALL_LOCAL: 1 when all items come from the home warehouse.
        ALL_LOCAL: u8,
    }
}

layout! {
    /// ORDER-LINE: primary key (OL_W_ID, OL_D_ID, OL_O_ID, OL_NUMBER).
    OrderLine = "order_line" {
        /// OL_W_ID.
        W_ID: Sorted<u16>,
        /// OL_D_ID.
        D_ID: u8,
        /// OL_O_ID.
        O_ID: Sorted<u32>,
        /// OL_NUMBER.
        NUMBER: u8,
        /// OL_I_ID.
        I_ID: u32,
        /// OL_SUPPLY_W_ID.
        SUPPLY_W_ID: u16,
        /// OL_DELIVERY_D; 0 is null.
        DELIVERY_D: u64,
        /// OL_QUANTITY.
        QUANTITY: u8,
        /// OL_AMOUNT, in cents.
        AMOUNT: i32,
        /// OL_DIST_INFO.
        DIST_INFO: Text<24>,
    }
}

layout! {
    /// ITEM: primary key (I_ID).
    Item = "item" {
        /// I_ID.
        ID: Sorted<u32>,
        /// I_IM_ID.
        IMAGE_ID: u32,
        /// I_NAME.
        NAME: Text<24>,
        /// I_PRICE, in cents.
        PRICE: i32,
        /// I_DATA.
        DATA: Text<50>,
    }
}

layout! {
    /// STOCK's counters: primary key (S_W_ID, S_I_ID).
    Stock = "stock" {
        /// S_W_ID.
        W_ID: Sorted<u16>,
        /// S_I_ID.
        I_ID: Sorted<u32>,
        /// S_QUANTITY.
        QUANTITY: i16,
        /// S_YTD.
        YTD: u32,
        /// S_ORDER_CNT.
        ORDER_COUNT: u32,
        /// S_REMOTE_CNT.
        REMOTE_COUNT: u32,
    }
}

layout! {
    /// STOCK's texts: primary key (S_W_ID, S_I_ID).
    StockData = "stock_data" {
        /// S_W_ID.
        W_ID: Sorted<u16>,
        /// S_I_ID.
        I_ID: Sorted<u32>,
        /// S_DIST_01 to S_DIST_10, one after another.
        DISTRICTS: Text<240>,
        /// S_DATA.
        DATA: Text<50>,
    }
}

layout! {
    /// What was loaded (not of the specification): one row, written last, so
    /// that its presence says that the initial population is complete.
    PopulationRow = "tpcc_population" {
        /// Always 1: the primary key.
        ID: u8,
        /// Number of warehouses.
        WAREHOUSES: u16,
        /// Number of items.
        ITEMS: u32,
        /// Customers of each district, and its orders too.
        CUSTOMERS: u32,
        /// Orders of each district that were not delivered yet.
        UNDELIVERED: u32,
        /// The seed of the random numbers.
        SEED: u64,
        /// The time that the population bears.
        LOADED_AT: u64,
    }
}

impl PopulationRow {
    /// The one value of its ID.
    pub const ONLY: u8 = 1;
}

impl StockData {
    /// The width of one S_DIST_xx.
    pub const DISTRICT_WIDTH: usize = 24;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Layout;

    /// Rows are as wide as the log and the documentation believe.
    #[test]
    fn widths() {
        let widths = [
            (Warehouse::WIDTH, 93),
            (District::WIDTH, 98),
            (Customer::WIDTH, 172),
            (CustomerData::WIDTH, 507),
            (History::WIDTH, 50),
            (NewOrderRow::WIDTH, 7),
            (Order::WIDTH, 22),
            (OrderLine::WIDTH, 51),
            (Item::WIDTH, 86),
            (Stock::WIDTH, 20),
            (StockData::WIDTH, 296),
        ];
        assert!(widths.iter().all(|(found, expected)| found == expected), "{widths:?}");
    }
}
