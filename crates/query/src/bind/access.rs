//! The choice of an access path: which index, and which part of it.

use freshet_sql::types::Kind;

use super::implied;
use crate::{
    expression::{Comparison, Expression},
    schema::TableInfo,
};

/// The index, and the part of it that is read.
#[derive(Clone, Debug)]
pub struct Access {
    /// The number of the index.
    pub index: usize,
    /// Values of its first columns.
    pub equal: Box<[Expression]>,
    /// Alternatives for the columns behind these.
    pub among: Among,
    /// What limits the column behind these.
    pub range: Range,
    /// Whether at most one row is found for each alternative: all columns of a unique index are
    /// given.
    pub single: bool,
    /// Whether it is read from the end.
    pub backward: bool,
}

/// Alternatives for columns of an index.
#[derive(Clone, Debug, Default)]
pub enum Among {
    /// The index is not read by alternatives.
    #[default]
    Nothing,
    /// One of these rows of values.
    Rows(Box<[Box<[Expression]>]>),
    /// An element of this array.
    Array(Expression),
    /// A value within one of these ranges of the next column; they may overlap.
    Ranges(Box<[Range]>),
}

/// What limits a column.
#[derive(Clone, Debug, Default)]
pub struct Range {
    /// The lower bound, and whether it is included.
    pub lower: Option<(Expression, bool)>,
    /// The upper bound.
    pub upper: Option<(Expression, bool)>,
}

impl Range {
    /// Whether there is a limit.
    pub fn is_some(&self) -> bool {
        self.lower.is_some() || self.upper.is_some()
    }
}

impl Access {
    /// The whole table, in the order of an index.
    pub fn all(index: usize) -> Self {
        Self {
            index,
            equal: Box::new([]),
            among: Among::Nothing,
            range: Range::default(),
            single: false,
            backward: false,
        }
    }

    /// Whether it reads the whole table.
    pub fn is_all(&self) -> bool {
        self.equal.is_empty() && matches!(self.among, Among::Nothing) && !self.range.is_some()
    }

    /// Whether it finds one row at most.
    pub fn is_one(&self) -> bool {
        self.single && matches!(self.among, Among::Nothing)
    }

    /// How many columns of the index have one value only.
    pub fn fixed(&self) -> usize {
        self.equal.len()
    }
}

/// What is wanted of an order: what is ordered by, whether larger values come first, and whether
/// nulls do.
pub type Order = [(Expression, bool, bool)];

/// Conditions that a choice can use; those that it makes superfluous are taken out.
struct Conditions<'c> {
    all: &'c [Expression],
    source: u16,
}

/// The column of `source` that an expression is, looking through casts that keep comparisons as
/// they are.
fn column_of(expression: &Expression, source: u16, info: &TableInfo) -> Option<u16> {
    match expression {
        Expression::Column { source: own, column } if *own == source => Some(*column),
        Expression::Cast(cast, inner) => {
            let column = column_of(inner, source, info)?;
            let (from, to) = (info.column_type(usize::from(column)).kind(), cast.to().kind());
            let whole = |kind| matches!(kind, Kind::Int2 | Kind::Int4 | Kind::Int8);
            let keeps = match (from, to) {
                (from, Kind::Int4 | Kind::Int8 | Kind::Numeric) if whole(from) => cast.to().modifier() == -1,
                (Kind::Numeric, Kind::Numeric) => cast.to().modifier() == -1,
                (Kind::Float4, Kind::Float8) | (Kind::Cidr, Kind::Inet) => true,
                _ => false,
            };
            keeps.then_some(column)
        }
        _ => None,
    }
}

impl Conditions<'_> {
    fn value(&self, expression: &Expression) -> bool {
        expression.is_before(self.source) && !expression.is_volatile()
    }

    /// The condition `column = value`.
    fn equal(&self, column: u16, info: &TableInfo) -> Option<(usize, &Expression)> {
        self.all.iter().enumerate().find_map(|(at, condition)| {
            let Expression::Compare(Comparison::Equal, operands) = condition else { return None };
            let (one, other) = (&operands.0, &operands.1);
            if column_of(one, self.source, info) == Some(column) && self.value(other) {
                Some((at, other))
            } else if column_of(other, self.source, info) == Some(column) && self.value(one) {
                Some((at, one))
            } else {
                None
            }
        })
    }

    /// Ranges of a column; a row is in one of them: `column BETWEEN … OR column > …`.
    fn ranges(&self, column: u16, info: &TableInfo) -> Option<Among> {
        self.all.iter().find_map(|condition| {
            let Expression::Or(alternatives) = condition else { return None };
            let range = |alternative: &Expression| {
                let one = Conditions { all: std::slice::from_ref(alternative), source: self.source };
                if let Some((_, value)) = one.equal(column, info) {
                    return Some(Range { lower: Some((value.clone(), true)), upper: Some((value.clone(), true)) });
                }
                Some(one.range(column, info)).filter(Range::is_some)
            };
            alternatives.iter().map(range).collect::<Option<Box<[Range]>>>().map(Among::Ranges)
        })
    }

    /// What limits a column.
    fn range(&self, column: u16, info: &TableInfo) -> Range {
        let mut range = Range::default();
        let conditions = self.all.iter().flat_map(|condition| match condition {
            // BETWEEN
            Expression::And(inner) => inner.iter().collect::<Vec<_>>(),
            other => vec![other],
        });
        for condition in conditions {
            let Expression::Compare(comparison, operands) = condition else { continue };
            let (comparison, value) =
                if column_of(&operands.0, self.source, info) == Some(column) && self.value(&operands.1) {
                    (*comparison, &operands.1)
                } else if column_of(&operands.1, self.source, info) == Some(column) && self.value(&operands.0) {
                    (comparison.turned(), &operands.0)
                } else {
                    continue;
                };
            match comparison {
                Comparison::Greater | Comparison::GreaterOrEqual if range.lower.is_none() => {
                    range.lower = Some((value.clone(), comparison == Comparison::GreaterOrEqual));
                }
                Comparison::Less | Comparison::LessOrEqual if range.upper.is_none() => {
                    range.upper = Some((value.clone(), comparison == Comparison::LessOrEqual));
                }
                _ => {}
            }
        }
        range
    }

    /// Alternatives for the columns from the index's column number `from` on: how many columns,
    /// which, and the condition's number.
    fn among(&self, columns: &[u16], info: &TableInfo) -> Option<(usize, Among, usize)> {
        self.all.iter().enumerate().find_map(|(at, condition)| match condition {
            Expression::In(operand, list) => {
                let first = column_of(operand, self.source, info)?;
                let fits = columns.first() == Some(&first) && list.iter().all(|value| self.value(value));
                let rows = list.iter().map(|value| Box::from([value.clone()])).collect();
                fits.then_some((1, Among::Rows(rows), at))
            }
            Expression::InRows(operands, rows) => {
                let named: Option<Vec<u16>> =
                    operands.iter().map(|operand| column_of(operand, self.source, info)).collect();
                let (named, wanted) = (named?, columns.get(..operands.len())?);
                // Where each of the index's columns is in the rows.
                let places: Option<Vec<usize>> =
                    wanted.iter().map(|column| named.iter().position(|named| named == column)).collect();
                let places = places?;
                let fits = rows.iter().all(|row| row.iter().all(|value| self.value(value)));
                let pick = |row: &[Expression]| places.iter().map(|place| row[*place].clone()).collect();
                fits.then(|| (wanted.len(), Among::Rows(rows.iter().map(|row| pick(row)).collect()), at))
            }
            Expression::Quantified { any: true, operator, operands } if operator.name == "=" => {
                let first = column_of(&operands.0, self.source, info)?;
                let fits = columns.first() == Some(&first) && self.value(&operands.1);
                fits.then(|| (1, Among::Array(operands.1.clone()), at))
            }
            _ => None,
        })
    }
}

/// An access path that can be chosen.
struct Choice {
    access: Access,
    ordered: bool,
    score: u32,
    /// Conditions that need not be looked at any more.
    used: Vec<usize>,
    /// The conditions with columns in place of what is computed for the index, if anything is.
    replaced: Option<Vec<Expression>>,
}

/// Chooses how the rows of `source`, which are those of a table, are found, and takes the
/// conditions out that need not be looked at any more. `order` is what they should be ordered by;
/// returned is whether they are.
pub fn choose(info: &TableInfo, source: u16, conditions: &mut Vec<Expression>, order: &Order) -> (Access, bool) {
    let mut best: Option<Choice> = None;
    for (number, index) in info.table.indexes.iter().enumerate() {
        let mut used = Vec::new();
        if !implied::has_all(info, number, source, conditions, |at| used.push(at)) {
            continue;
        }
        let computed = implied::usable(info, number, source, conditions);
        let replaced = (!computed.is_empty()).then(|| {
            let mut replaced = conditions.clone();
            replaced.iter_mut().for_each(|condition| implied::replace(condition, &computed, source));
            replaced
        });
        let usable = Conditions { all: replaced.as_ref().unwrap_or(conditions), source };
        let columns: Vec<u16> = index.columns.iter().map(|part| part.column).collect();
        let mut equal = Vec::new();
        for column in &columns {
            let Some((at, value)) = usable.equal(*column, info) else { break };
            equal.push(value.clone());
            used.push(at);
        }
        let mut given = equal.len();
        let mut among = Among::Nothing;
        if let Some((count, found, at)) = usable.among(&columns[given..], info) {
            given += count;
            among = found;
            used.push(at);
        }
        let range = match (&among, columns.get(given)) {
            (Among::Nothing, Some(column)) => usable.range(*column, info),
            _ => Range::default(),
        };
        if let (Among::Nothing, false, Some(column)) = (&among, range.is_some(), columns.get(given))
            && let Some(found) = usable.ranges(*column, info)
        {
            among = found;
        }
        let single = index.is_unique_at_once() && given == columns.len();
        let order_columns = order.iter().map(|(expression, descending, nulls_first)| {
            let mut expression = expression.clone();
            implied::replace(&mut expression, &computed, source);
            match expression {
                Expression::Column { source: own, column } if own == source => {
                    Some((column, *descending, *nulls_first))
                }
                _ => None,
            }
        });
        let (ordered, backward) = match order_columns.collect::<Option<Vec<_>>>() {
            Some(order) => order_of(index, equal.len(), &among, single, &order),
            None => (single && matches!(among, Among::Nothing), false),
        };
        let mut score = match (&among, single) {
            (Among::Nothing, true) => 1000,
            (_, true) => 500,
            _ => 0,
        };
        score += 10 * u32::from(matches!(among, Among::Ranges(_)));
        score += 20 * given as u32 + 10 * u32::from(range.lower.is_some()) + 10 * u32::from(range.upper.is_some());
        score += 5 * u32::from(ordered && !order.is_empty());
        // It has no more rows than the others.
        score += 2 * u32::from(index.predicate.is_some());
        let access = Access { index: number, equal: equal.into(), among, range, single, backward };
        if best.as_ref().is_none_or(|best| score > best.score) {
            best = Some(Choice { access, ordered, score, used, replaced });
        }
    }
    let Some(Choice { access, ordered, mut used, replaced, .. }) = best else {
        return (Access::all(0), order.is_empty());
    };
    if let Some(replaced) = replaced {
        *conditions = replaced;
    }
    // The key says it: equality of what is in the key with what was looked for.
    used.sort_unstable();
    used.dedup();
    for at in used.into_iter().rev() {
        conditions.remove(at);
    }
    (access, ordered)
}

/// Whether the rows come in an order, and whether backwards.
fn order_of(
    index: &crate::schema::Index,
    equal: usize,
    among: &Among,
    single: bool,
    order: &[(u16, bool, bool)],
) -> (bool, bool) {
    if order.is_empty() || (single && matches!(among, Among::Nothing)) {
        return (true, false);
    }
    if !matches!(among, Among::Nothing) {
        return (false, false);
    }
    let fixed: Vec<u16> = index.columns[..equal].iter().map(|part| part.column).collect();
    let mut parts = index.columns[equal..].iter();
    let mut backward = None;
    for (column, descending, nulls_first) in order {
        if fixed.contains(column) {
            continue;
        }
        let Some(part) = parts.next() else { return (false, false) };
        if part.column != *column {
            return (false, false);
        }
        let turned = part.descending != *descending;
        let nulls_turned = part.nulls_first != *nulls_first;
        if *backward.get_or_insert(turned) != turned || nulls_turned != turned {
            return (false, false);
        }
    }
    (true, backward.unwrap_or(false))
}
