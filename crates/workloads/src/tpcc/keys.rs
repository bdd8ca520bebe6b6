//! Keys as the indexes hold them: columns in key order, numbers big-endian, so
//! that keys compare as their values do. On the stack, always.

use crate::row::Text;

/// A key from the parts' bytes; the parts fill it exactly.
macro_rules! key {
    ($width:literal: $($part:expr),+) => {{
        let mut key = [0u8; $width];
        let mut at = 0;
        $({
            let part = $part;
            key[at..at + part.len()].copy_from_slice(&part);
            at += part.len();
        })+
        debug_assert_eq!(at, $width);
        key
    }};
}

/// Of `warehouse`.
#[inline]
pub fn warehouse(warehouse: u16) -> [u8; 2] {
    warehouse.to_be_bytes()
}

/// Of `district`.
#[inline]
pub fn district(warehouse: u16, district: u8) -> [u8; 3] {
    key!(3: warehouse.to_be_bytes(), [district])
}

/// Of `customer` and `customer_data`.
#[inline]
pub fn customer(warehouse: u16, district: u8, customer: u32) -> [u8; 7] {
    key!(7: warehouse.to_be_bytes(), [district], customer.to_be_bytes())
}

const NAME: usize = 3 + 16 + 16;

/// The smallest and the largest key that a customer with this last name can
/// have in `customer`'s index by name; between them they are in the order of C_FIRST.
#[inline]
pub fn customers_named(warehouse: u16, district: u8, last: Text<16>) -> ([u8; NAME], [u8; NAME]) {
    let key = |first: [u8; 16]| key!(35: warehouse.to_be_bytes(), [district], last.0, first);
    (key([0; 16]), key([u8::MAX; 16]))
}

/// Of `orders` and of `new_order`.
#[inline]
pub fn order(warehouse: u16, district: u8, order: u32) -> [u8; 7] {
    customer(warehouse, district, order)
}

/// Of `orders`' index by customer.
#[inline]
pub fn order_of_customer(warehouse: u16, district: u8, customer: u32, order: u32) -> [u8; 11] {
    key!(11: warehouse.to_be_bytes(), [district], customer.to_be_bytes(), order.to_be_bytes())
}

/// Of `order_line`.
#[inline]
pub fn order_line(warehouse: u16, district: u8, order: u32, number: u8) -> [u8; 8] {
    key!(8: warehouse.to_be_bytes(), [district], order.to_be_bytes(), [number])
}

/// Of `item`.
#[inline]
pub fn item(item: u32) -> [u8; 4] {
    item.to_be_bytes()
}

/// Of `stock` and of `stock_data`.
#[inline]
pub fn stock(warehouse: u16, item: u32) -> [u8; 6] {
    key!(6: warehouse.to_be_bytes(), item.to_be_bytes())
}
