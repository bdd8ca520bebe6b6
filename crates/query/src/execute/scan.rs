//! The rows of one table by an access path, and nested loops over several.

use std::ops::{Bound, ControlFlow};

use freshet_engine::{Direction, Record};
use freshet_sql::{
    SqlError, Value, ValueRef,
    row::{KeyColumn, KeyRange},
};
use smallvec::SmallVec;

use super::{
    Run,
    measure::{Place, Probe},
};
use crate::{
    bind::{
        access::{Access, Among, Range},
        select::ScanPlan,
    },
    error::read_error,
    expression::{Environment, Expression, Source},
};

/// The rows of the loops that are open, outermost first.
pub type Rows<'a> = SmallVec<[Source<'a>; 4]>;

/// Whether to go on.
pub type Flow = Result<ControlFlow<()>, SqlError>;

/// The scan continues.
pub const ON: Flow = Ok(ControlFlow::Continue(()));

impl<'a> Run<'a, '_> {
    /// Calls `visit` for each combination of rows of these tables that fulfils their filters, with
    /// the last table's record.
    ///
    /// # Errors
    /// What goes wrong in reading, in expressions, in `visit`.
    pub fn join<P: Probe>(
        &self,
        scans: &'a [ScanPlan],
        rows: &mut Rows<'a>,
        visit: &mut dyn FnMut(&Rows<'a>, Option<Record<'a>>) -> Flow,
        probe: P,
    ) -> Flow {
        let Some((scan, deeper)) = scans.split_first() else {
            probe.rows(Place::Result, 1);
            return visit(rows, None);
        };
        let place = Place::Scan(rows.len());
        probe.begins(place);
        probe.within(place, || {
            self.scan(scan, rows, &mut |rows, record| {
                probe.rows(place, 1);
                probe.within(Place::Join, || match deeper {
                    [] => visit(rows, Some(record)),
                    _ => self.join(deeper, rows, visit, probe),
                })
            })
        })
    }

    /// Calls `visit` for each row of a table that fulfils its filter, with that row behind `rows`.
    ///
    /// # Errors
    /// As for [`Run::join`].
    pub fn scan(
        &self,
        scan: &'a ScanPlan,
        rows: &mut Rows<'a>,
        visit: &mut dyn FnMut(&mut Rows<'a>, Record<'a>) -> Flow,
    ) -> Flow {
        let depth = rows.len();
        let mut ends = Vec::new();
        let access = &scan.access;
        let mut prefix = self.take_key();
        let some = self.append_values(scan, &access.equal, 0, rows, &mut prefix)?;
        let result = if !some {
            ON
        } else {
            match &access.among {
                Among::Nothing => self.range(scan, &prefix, rows, depth, visit),
                Among::Rows(alternatives) => {
                    for values in alternatives {
                        let mut key = self.take_key();
                        key.extend_from_slice(&prefix);
                        if self.append_values(scan, values, access.equal.len(), rows, &mut key)? {
                            ends.push(key);
                        }
                    }
                    self.each(scan, ends, rows, depth, visit)
                }
                Among::Array(array) => {
                    if let Value::Array(array) = array.evaluate(rows, &self.environment)? {
                        let column = &scan.table.keys[access.index][access.equal.len()];
                        for value in array.values().iter().filter(|value| !value.is_null()) {
                            let mut key = self.take_key();
                            key.extend_from_slice(&prefix);
                            if column.append_key(value.as_ref(), &mut key)? {
                                ends.push(key);
                            }
                        }
                    }
                    self.each(scan, ends, rows, depth, visit)
                }
                Among::Ranges(ranges) => {
                    let column = &scan.table.keys[access.index][access.equal.len()];
                    let mut flow = ON;
                    for keys in self.alternatives(&prefix, column, ranges, rows)? {
                        flow = self.keys(scan, &keys, rows, depth, visit);
                        if !matches!(flow, Ok(ControlFlow::Continue(()))) {
                            break;
                        }
                    }
                    flow
                }
            }
        };
        self.give_key(prefix);
        result
    }

    /// Each of several beginnings of keys, once and in order.
    fn each(
        &self,
        scan: &'a ScanPlan,
        mut prefixes: Vec<Vec<u8>>,
        rows: &mut Rows<'a>,
        depth: usize,
        visit: &mut dyn FnMut(&mut Rows<'a>, Record<'a>) -> Flow,
    ) -> Flow {
        prefixes.sort_unstable();
        prefixes.dedup();
        for prefix in &prefixes {
            if self.range(scan, prefix, rows, depth, visit)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        prefixes.into_iter().for_each(|key| self.give_key(key));
        ON
    }

    /// Appends values to a key; says whether any row can have them.
    fn append_values(
        &self,
        scan: &'a ScanPlan,
        values: &'a [Expression],
        from: usize,
        rows: &Rows<'a>,
        key: &mut Vec<u8>,
    ) -> Result<bool, SqlError> {
        let columns = &scan.table.keys[scan.access.index][from..];
        for (value, column) in values.iter().zip(columns) {
            let mut hold = Value::Null;
            let value = value.look(rows, &self.environment, &mut hold)?;
            if value.is_null() || !column.append_key(value, key)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The rows whose keys begin with `prefix`, and whose next column is within the range.
    fn range(
        &self,
        scan: &'a ScanPlan,
        prefix: &[u8],
        rows: &mut Rows<'a>,
        depth: usize,
        visit: &mut dyn FnMut(&mut Rows<'a>, Record<'a>) -> Flow,
    ) -> Flow {
        let Access { index, range, single, .. } = &scan.access;
        let table = &scan.table;
        if *single {
            let found = self.transaction.get(&table.rows, table.index_number(*index), prefix).map_err(read_error)?;
            self.count_read(table, &scan.access, 1, u64::from(found.is_some()));
            let flow = found.map_or(ON, |record| self.one(scan, record, rows, depth, visit));
            rows.truncate(depth);
            return flow;
        }
        let mut keys = KeyRange::new();
        if range.is_some() {
            let column = &table.keys[*index][scan.access.equal.len()];
            self.set_between(&mut keys, prefix, column, range, rows)?;
        } else {
            keys.set_prefix(prefix);
        }
        self.keys(scan, &keys, rows, depth, visit)
    }

    /// Makes a range that of the keys which begin with `prefix` and whose next column is within
    /// limits.
    pub(crate) fn set_between(
        &self,
        keys: &mut KeyRange,
        prefix: &[u8],
        column: &KeyColumn,
        range: &Range,
        rows: &[Source<'_>],
    ) -> Result<(), SqlError> {
        let (mut lower, mut upper) = (Value::Null, Value::Null);
        let lower = bound(&range.lower, rows, &self.environment, &mut lower)?;
        let upper = bound(&range.upper, rows, &self.environment, &mut upper)?;
        keys.set_between(prefix, column, lower, upper)
    }

    /// The rows whose keys are within one of several ranges.
    pub(crate) fn alternatives(
        &self,
        prefix: &[u8],
        column: &KeyColumn,
        ranges: &[Range],
        rows: &[Source<'_>],
    ) -> Result<Vec<KeyRange>, SqlError> {
        let mut found = Vec::with_capacity(ranges.len());
        for range in ranges {
            let mut keys = KeyRange::new();
            self.set_between(&mut keys, prefix, column, range, rows)?;
            found.push(keys);
        }
        Ok(KeyRange::disjoint(found))
    }

    /// A row that was found.
    fn one(
        &self,
        scan: &'a ScanPlan,
        record: Record<'a>,
        rows: &mut Rows<'a>,
        depth: usize,
        visit: &mut dyn FnMut(&mut Rows<'a>, Record<'a>) -> Flow,
    ) -> Flow {
        self.step()?;
        rows.truncate(depth);
        rows.push(Source::Stored(&scan.table.layout, record.row, record.rid));
        if let Some(filter) = &scan.filter
            && !filter.holds(rows, &self.environment)?
        {
            return ON;
        }
        visit(rows, record)
    }

    /// The rows whose keys are in a range.
    fn keys(
        &self,
        scan: &'a ScanPlan,
        keys: &KeyRange,
        rows: &mut Rows<'a>,
        depth: usize,
        visit: &mut dyn FnMut(&mut Rows<'a>, Record<'a>) -> Flow,
    ) -> Flow {
        if keys.is_empty() {
            return ON;
        }
        let Access { index, backward, .. } = &scan.access;
        let table = &scan.table;
        let (mut outcome, mut met) = (ON, 0);
        let direction = if *backward { Direction::Backward } else { Direction::Forward };
        let index = table.index_number(*index);
        let read = self.transaction.scan(&table.rows, index, keys.bounds(), direction, |_, record| {
            met += 1;
            outcome = self.one(scan, record, rows, depth, visit);
            match outcome {
                Ok(flow) => flow,
                Err(_) => ControlFlow::Break(()),
            }
        });
        self.count_read(table, &scan.access, 1, met);
        read.map_err(read_error)?;
        rows.truncate(depth);
        outcome
    }
}

/// A bound of a range, as a value.
pub(crate) fn bound<'v>(
    bound: &'v Option<(Expression, bool)>,
    rows: &[Source<'v>],
    environment: &Environment<'v>,
    hold: &'v mut Value,
) -> Result<Bound<ValueRef<'v>>, SqlError> {
    Ok(match bound {
        None => Bound::Unbounded,
        Some((value, true)) => Bound::Included(value.look(rows, environment, hold)?),
        Some((value, false)) => Bound::Excluded(value.look(rows, environment, hold)?),
    })
}
