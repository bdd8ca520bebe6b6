//! The order of nested loops.

use super::{
    ScopeSource,
    access::{self, Access, Among},
};
use crate::expression::{Comparison, Expression};

/// Among more tables than these no order is looked for.
const MOST: usize = 10;

/// How many rows an access path may find, roughly: the fewer, the less.
fn rank(access: &Access) -> (u8, std::cmp::Reverse<usize>) {
    let class = match (&access.among, access.single) {
        (Among::Nothing, true) => 0,
        (_, true) => 1,
        _ if access.fixed() > 0 || !matches!(access.among, Among::Nothing) => 2,
        _ if !access.is_all() => 3,
        _ => 4,
    };
    (class, std::cmp::Reverse(access.fixed()))
}

/// Renumbers the sources of an expression: source n becomes `places[n]`. Those behind them stay
/// what they are.
pub(super) fn renumber(expression: &mut Expression, places: &[u16]) {
    expression.each_column(&mut |source, _| {
        if let Some(place) = places.get(usize::from(*source)) {
            *source = *place;
        }
    });
}

/// Adds what follows: where columns are equal, and one of them to a value, the other is so too.
pub(super) fn add_consequences(conditions: &mut Vec<Expression>) {
    let column = |expression: &Expression| match expression {
        Expression::Column { source, column } => Some((*source, *column)),
        _ => None,
    };
    let mut pairs = Vec::new();
    let mut values: Vec<((u16, u16), Expression)> = Vec::new();
    for condition in conditions.iter() {
        let Expression::Compare(Comparison::Equal, operands) = condition else { continue };
        let (one, other) = (&operands.0, &operands.1);
        match (column(one), column(other)) {
            (Some(one), Some(other)) => pairs.push((one, other)),
            (Some(one), None) if other.is_before(0) && !other.is_volatile() => values.push((one, other.clone())),
            (None, Some(other)) if one.is_before(0) && !one.is_volatile() => values.push((other, one.clone())),
            _ => {}
        }
    }
    // Each round may make others possible; there are no more columns than conditions.
    for _ in 0..pairs.len() {
        for (one, other) in &pairs {
            for (from, to) in [(one, other), (other, one)] {
                if values.iter().any(|(column, _)| column == to) {
                    continue;
                }
                let Some((_, value)) = values.iter().find(|(column, _)| column == from) else { continue };
                let value = value.clone();
                let target = Expression::Column { source: to.0, column: to.1 };
                conditions.push(Expression::Compare(Comparison::Equal, Box::new((target, value.clone()))));
                values.push((*to, value));
            }
        }
    }
}

/// The order in which tables are read, as their numbers in the statement: first those with few
/// rows, given the values of those before. Where nothing speaks for another order, it is the one
/// that was written.
pub(super) fn order_of_loops(tables: &[ScopeSource], conditions: &[Expression]) -> Vec<usize> {
    let count = tables.len();
    if !(2..=MOST).contains(&count) {
        return (0..count).collect();
    }
    let mut order: Vec<usize> = Vec::with_capacity(count);
    while order.len() < count {
        let left = (0..count).filter(|number| !order.contains(number));
        let best = left.min_by_key(|candidate| {
            let Some(table) = &tables[*candidate].table else { return (u8::MAX, std::cmp::Reverse(0)) };
            let first: Vec<usize> = order.iter().copied().chain([*candidate]).collect();
            let places = places(&first, count);
            let place = order.len() as u16;
            let mut usable = conditions.to_vec();
            usable.iter_mut().for_each(|condition| renumber(condition, &places));
            usable.retain(|condition| condition.is_before(place + 1));
            rank(&access::choose(table, place, &mut usable, &[]).0)
        });
        order.extend(best);
    }
    order
}

/// Where each table comes, when these are the first ones.
pub(super) fn places(first: &[usize], count: usize) -> Vec<u16> {
    let rest = (0..count).filter(|number| !first.contains(number));
    let mut places = vec![0; count];
    for (place, number) in first.iter().copied().chain(rest).enumerate() {
        places[number] = place as u16;
    }
    places
}

/// Whether the loops are better left to a join that reads each table once: for each of several rows
/// a whole table is read, or for each row of a whole table more than one of another may be.
pub(super) fn is_for_general(accesses: &[&Access]) -> bool {
    accesses.iter().enumerate().any(|(number, access)| {
        let outer = &accesses[..number];
        (access.is_all() && !outer.iter().all(|outer| outer.is_one()))
            || (!access.single && outer.iter().any(|outer| outer.is_all()))
    })
}
