//! How an order is written down: in few bytes, since most of what New-Order is told is its lines.

use serde::{Deserialize, Serialize};

use super::{Line, NewOrder};
use crate::{list::List, tpcc::population::MOST_LINES};

/// [`NewOrder`], as it travels.
#[derive(Serialize, Deserialize)]
pub(super) struct WrittenOrder {
    warehouse: u16,
    district: u8,
    customer: u32,
    entered_at: u64,
    lines: Lines,
}

#[derive(Serialize, Deserialize)]
enum Lines {
    /// As terminals make them up.
    Usual {
        /// Item and quantity of each line in one number.
        packed: List<u32, MOST_LINES>,
        /// The numbers of the lines that other warehouses supply, and which.
        remote: List<(u8, u16), MOST_LINES>,
    },
    /// Whatever they are.
    Any(List<Line, MOST_LINES>),
}

/// Where the item begins in a packed line.
const ITEM: u32 = 4;

/// A line, packed, if it can be.
fn packed(line: &Line) -> Option<u32> {
    let fits = line.item >> (u32::BITS - ITEM) == 0 && line.quantity >> ITEM == 0;
    fits.then_some(line.item << ITEM | u32::from(line.quantity))
}

impl From<NewOrder> for WrittenOrder {
    fn from(order: NewOrder) -> Self {
        let NewOrder { warehouse, district, customer, entered_at, lines } = order;
        let (mut all, mut remote) = (List::new(), List::new());
        // All fit: as many as there are lines at most.
        let usual = (0..).zip(lines.iter()).all(|(number, line)| {
            let is_here = line.supply_warehouse == warehouse || remote.push((number, line.supply_warehouse));
            is_here && packed(line).is_some_and(|line| all.push(line))
        });
        let lines = if usual { Lines::Usual { packed: all, remote } } else { Lines::Any(lines) };
        Self { warehouse, district, customer, entered_at, lines }
    }
}

impl From<WrittenOrder> for NewOrder {
    fn from(written: WrittenOrder) -> Self {
        let WrittenOrder { warehouse, district, customer, entered_at, lines } = written;
        let lines = match lines {
            Lines::Any(lines) => lines,
            Lines::Usual { packed, remote } => {
                let mut lines = List::new();
                for (number, line) in (0..).zip(packed.iter()) {
                    let supplier = remote.iter().find(|(of, _)| *of == number).map(|(_, supplier)| *supplier);
                    let quantity = (line & ((1 << ITEM) - 1)) as u8;
                    let supply_warehouse = supplier.unwrap_or(warehouse);
                    let fits = lines.push(Line { item: line >> ITEM, supply_warehouse, quantity });
                    debug_assert!(fits, "the packed ones are no more");
                }
                lines
            }
        };
        Self { warehouse, district, customer, entered_at, lines }
    }
}
