//! SELECT: rows of loops, grouped, ordered, limited.

use std::{
    cell::Cell,
    cmp::Ordering,
    collections::{HashMap, HashSet},
    ops::ControlFlow,
};

use freshet_engine::Record;
use freshet_sql::{SqlError, SqlState, Value, types::Array};

use super::{
    Run, Sink,
    aggregate::Accumulator,
    measure::{Place, Probe},
    modify::Collected,
    scan::{Flow, ON, Rows},
    write::Written,
};
use crate::{
    bind::{
        first::First,
        select::{Aggregation, Output, ScanPlan, SelectPlan, SortKey},
    },
    error::read_error,
    expression::{Expression, Source},
};

/// How many rows are let through.
struct Window {
    skip: u64,
    left: u64,
    /// How many it has shown.
    shown: u64,
}

impl Window {
    /// Whether the next row is shown; nothing when no row will be any more.
    fn next(&mut self) -> Option<bool> {
        if self.left == 0 {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return Some(false);
        }
        self.left -= 1;
        self.shown += 1;
        Some(true)
    }

    /// Shows the next row, or leaves it out; breaks when no row will be shown any more.
    fn pass(&mut self, show: impl FnOnce() -> Flow) -> Flow {
        match self.next() {
            None => Ok(ControlFlow::Break(())),
            Some(false) => ON,
            Some(true) => {
                let flow = show()?;
                Ok(if self.left == 0 { ControlFlow::Break(()) } else { flow })
            }
        }
    }
}

/// Rows that are ordered before they are shown: their keys, and what is shown.
type Sorted = Vec<(Box<[Value]>, Box<[Value]>)>;

fn compare(keys: &[SortKey], one: &[Value], other: &[Value]) -> Ordering {
    for (key, (one, other)) in keys.iter().zip(one.iter().zip(other)) {
        let order = match (one.is_null(), other.is_null()) {
            (true, true) => Ordering::Equal,
            (true, false) => {
                if key.nulls_first {
                    Ordering::Less
                } else {
                    Ordering::Greater
                }
            }
            (false, true) => {
                if key.nulls_first {
                    Ordering::Greater
                } else {
                    Ordering::Less
                }
            }
            (false, false) => {
                let order = one.as_ref().compare(other.as_ref());
                if key.descending { order.reverse() } else { order }
            }
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

impl<'a> Run<'a, '_> {
    fn count(&self, expression: Option<&Expression>, clause: &str) -> Result<Option<u64>, SqlError> {
        let Some(expression) = expression else { return Ok(None) };
        let value = expression.evaluate(&[], &self.environment)?;
        let Some(number) = value.as_i64() else { return Ok(None) };
        let negative = || {
            let state = if clause == "LIMIT" { SqlState::new("2201W") } else { SqlState::new("2201X") };
            SqlError::new(state, format!("{clause} must not be negative"))
        };
        u64::try_from(number).map(Some).map_err(|_| negative())
    }

    /// Runs a subquery whose value others need.
    ///
    /// # Errors
    /// As for [`Run::select`]; 21000 when it gives several rows where one value is wanted.
    pub fn first<P: Probe>(&self, first: &'a First, probe: P) -> Result<Value, SqlError> {
        let mut collected = Collected::within(&self.memory);
        self.select(&first.plan, &mut collected, probe)?;
        let mut values = Vec::with_capacity(collected.0.len());
        for mut row in collected.0 {
            self.kept.take_values(&row)?;
            values.push(row.pop().unwrap_or(Value::Null));
        }
        match first.list_of {
            Some(element) => Ok(Value::array(Array::new(element, values))),
            None if values.len() > 1 => {
                let message = "more than one row returned by a subquery used as an expression";
                Err(SqlError::new(SqlState::new("21000"), message))
            }
            None => Ok(values.pop().unwrap_or(Value::Null)),
        }
    }

    /// Runs a SELECT. Returns how many rows it has shown.
    ///
    /// # Errors
    /// What goes wrong in reading, in expressions, in the sink.
    pub fn select<P: Probe>(&self, plan: &'a SelectPlan, sink: &mut dyn Sink, probe: P) -> Result<u64, SqlError> {
        let limit = self.count(plan.limit.as_ref(), "LIMIT")?;
        let skip = self.count(plan.offset.as_ref(), "OFFSET")?.unwrap_or(0);
        let mut window = Window { skip, left: limit.unwrap_or(u64::MAX), shown: 0 };
        let keep = limit.map(|limit| limit.saturating_add(skip));
        if let Some(filter) = &plan.filter
            && plan.aggregation.is_none()
            && !filter.holds(&[], &self.environment)?
        {
            return Ok(0);
        }
        if !plan.values.is_empty() {
            for row in &plan.values {
                let Some(show) = window.next() else { break };
                probe.rows(Place::Result, 1);
                self.row_is_done();
                if show {
                    let values = row.iter().map(|value| value.evaluate(&[], &self.environment));
                    if sink.values(&values.collect::<Result<Vec<_>, _>>()?)?.is_break() {
                        break;
                    }
                }
            }
            probe.rows(Place::Limit, window.shown);
            return Ok(window.shown);
        }
        let locks = plan.locks();
        if locks && !plan.order.is_empty() {
            return self.locked_in_order(plan, window, sink, probe);
        }
        let above = match (plan.distinct, plan.order.is_empty()) {
            (true, _) => Place::Unique,
            (false, false) => Place::Sort,
            (false, true) => Place::Top,
        };
        let mut distinct = HashSet::new();
        let mut sorted: Sorted = Vec::new();
        let mut show = |rows: &[Source<'_>]| -> Flow {
            if !plan.distinct && plan.order.is_empty() {
                return window.pass(|| sink.row(&plan.output, rows, &self.environment));
            }
            let evaluate = |expression: &Expression| expression.evaluate(rows, &self.environment);
            let values: Box<[Value]> =
                plan.output.iter().map(|output: &Output| evaluate(&output.expression)).collect::<Result<_, _>>()?;
            if plan.distinct {
                if !distinct.insert(values.clone()) {
                    return ON;
                }
                probe.rows(Place::Unique, 1);
                self.kept.take_values(&values)?;
            }
            if plan.order.is_empty() {
                return window.pass(|| sink.values(&values));
            }
            let keys = plan.order.iter().map(|key| evaluate(&key.expression)).collect::<Result<Box<[_]>, _>>()?;
            match keep {
                // No more than these will be shown.
                Some(keep) if sorted.len() as u64 >= keep.saturating_mul(2).max(1024) => {
                    sorted.sort_by(|(one, _), (other, _)| compare(&plan.order, one, other));
                    sorted.truncate(keep as usize);
                }
                Some(_) => {}
                None => {
                    self.kept.take_values(&values)?;
                    self.kept.take_values(&keys)?;
                }
            }
            sorted.push((keys, values));
            ON
        };
        match &plan.aggregation {
            None => {
                if window_is_empty(limit) {
                    return Ok(0);
                }
                let flow = self.join(
                    &plan.scans,
                    &mut Rows::new(),
                    &mut |rows, _| match locks {
                        false => probe.within(above, || show(rows)),
                        true => probe.within(Place::Lock, || {
                            self.locked(plan, rows, &mut |rows| {
                                probe.rows(Place::Lock, 1);
                                probe.within(above, || show(rows))
                            })
                        }),
                    },
                    probe,
                );
                let _ = flow?;
            }
            Some(aggregation) => {
                self.aggregate(plan, aggregation, &mut |rows| probe.within(above, || show(rows)), probe)?;
            }
        }
        if !plan.order.is_empty() {
            probe.within(Place::Sort, || sorted.sort_by(|(one, _), (other, _)| compare(&plan.order, one, other)));
            for (_, values) in &sorted {
                probe.rows(Place::Sort, 1);
                if window.pass(|| sink.values(values))?.is_break() {
                    break;
                }
            }
        }
        probe.rows(Place::Limit, window.shown);
        Ok(window.shown)
    }

    /// Runs a SELECT that locks rows which do not come in its order: they are locked in it, and no
    /// more of them than are shown.
    fn locked_in_order<P: Probe>(
        &self,
        plan: &'a SelectPlan,
        mut window: Window,
        sink: &mut dyn Sink,
        probe: P,
    ) -> Result<u64, SqlError> {
        let mut sorted: Vec<(Box<[Value]>, Rows<'a>)> = Vec::new();
        if window.left > 0 {
            let mut keep = |rows: &Rows<'a>| {
                let keys = plan.order.iter().map(|key| key.expression.evaluate(rows, &self.environment));
                let keys = keys.collect::<Result<Box<[_]>, _>>()?;
                self.kept.take_values(&keys)?;
                self.kept.take(size_of::<Rows<'_>>() + rows.len() * size_of::<Source<'_>>())?;
                sorted.push((keys, rows.clone()));
                ON
            };
            let sort = &mut |rows: &Rows<'a>, _| probe.within(Place::Sort, || keep(rows));
            let _ = self.join(&plan.scans, &mut Rows::new(), sort, probe)?;
        }
        probe.within(Place::Sort, || sorted.sort_by(|(one, _), (other, _)| compare(&plan.order, one, other)));
        for (_, rows) in &sorted {
            probe.rows(Place::Sort, 1);
            let show = &mut |now: &[Source<'_>]| {
                probe.rows(Place::Lock, 1);
                window.pass(|| probe.within(Place::Top, || sink.row(&plan.output, now, &self.environment)))
            };
            if probe.within(Place::Lock, || self.locked(plan, rows, show))?.is_break() {
                break;
            }
        }
        probe.rows(Place::Limit, window.shown);
        Ok(window.shown)
    }

    /// Locks the rows of those loops that are marked, and shows them as they are then.
    fn locked(&self, plan: &'a SelectPlan, rows: &Rows<'a>, show: &mut dyn FnMut(&[Source<'_>]) -> Flow) -> Flow {
        let moved_here = |(number, scan): (usize, &ScanPlan)| match rows[number] {
            Source::Stored(_, _, rid) => self.moved.borrow().contains(&(scan.table.table.oid, rid)),
            _ => false,
        };
        if !self.moved.borrow().is_empty() && plan.scans.iter().enumerate().any(moved_here) {
            return ON;
        }
        let mut now = rows.clone();
        let changed = Cell::new(false);
        for (number, scan) in plan.scans.iter().enumerate() {
            let (Source::Stored(_, row, rid), Some(mark)) = (now[number], scan.mark) else { continue };
            let locked = self.write_found(
                &scan.table,
                Record { rid, row },
                |record| {
                    changed.set(true);
                    if record.rid != rid {
                        self.moved.borrow_mut().insert((scan.table.table.oid, record.rid));
                    }
                    Ok(true)
                },
                |record| {
                    let locked = self.lock_row(&scan.table, record.rid, mark)?;
                    let mut row = record.row;
                    if locked == Written::Done(())
                        && let Some(there) = self.transaction.read(&scan.table.rows, record.rid).map_err(read_error)?
                        && there.row != row
                    {
                        // It was locked for another combination of rows, and had been changed by
                        // then.
                        changed.set(true);
                        row = there.row;
                    }
                    now[number] = Source::Stored(&scan.table.layout, row, record.rid);
                    Ok(locked)
                },
            )?;
            if locked != Written::Done(()) {
                return ON;
            }
        }
        if changed.get() {
            // What was true of the rows before may not be true of what they are now.
            for (number, scan) in plan.scans.iter().enumerate() {
                if let Some(conditions) = &scan.conditions
                    && !conditions.holds(&now[..=number], &self.environment)?
                {
                    return ON;
                }
            }
        }
        show(&now)
    }

    fn aggregate<P: Probe>(
        &self,
        plan: &'a SelectPlan,
        aggregation: &'a Aggregation,
        show: &mut dyn FnMut(&[Source<'_>]) -> Flow,
        probe: P,
    ) -> Result<(), SqlError> {
        let Aggregation { groups, calls, having } = aggregation;
        let fresh = || calls.iter().map(Accumulator::new).collect::<Vec<_>>();
        let mut found: HashMap<Box<[Value]>, Vec<Accumulator<'_>>> = HashMap::new();
        let mut order: Vec<Box<[Value]>> = Vec::new();
        let mut all = fresh();
        let nothing = match &plan.filter {
            Some(filter) => !filter.holds(&[], &self.environment)?,
            None => false,
        };
        if !nothing {
            let mut add = |rows: &Rows<'a>| {
                let accumulators = if groups.is_empty() {
                    &mut all
                } else {
                    let key = groups.iter().map(|group| group.evaluate(rows, &self.environment));
                    let key: Box<[Value]> = key.collect::<Result<_, _>>()?;
                    match found.entry(key) {
                        std::collections::hash_map::Entry::Occupied(there) => there.into_mut(),
                        std::collections::hash_map::Entry::Vacant(place) => {
                            self.kept.take_values(place.key())?;
                            self.kept.take_values(place.key())?;
                            self.kept.take(size_of::<Accumulator<'_>>() * calls.len() + 64)?;
                            order.push(place.key().clone());
                            place.insert(fresh())
                        }
                    }
                };
                accumulators
                    .iter_mut()
                    .try_for_each(|accumulator| accumulator.add(rows, &self.environment, &self.kept))?;
                ON
            };
            let add = &mut |rows: &Rows<'a>, _| probe.within(Place::Aggregate, || add(rows));
            let _ = self.join(&plan.scans, &mut Rows::new(), add, probe)?;
        }
        if groups.is_empty() {
            found.insert(Box::new([]), all);
            order.push(Box::new([]));
        }
        for key in order {
            let Some(accumulators) = found.remove(&key) else { continue };
            let mut values = key.into_vec();
            for accumulator in accumulators {
                values.push(accumulator.finish(self.environment.context)?);
            }
            let mut rows: Rows<'_> = plan.scans.iter().map(|_| Source::Absent).collect();
            rows.push(Source::Values(&values));
            if let Some(having) = having
                && !having.holds(&rows, &self.environment)?
            {
                continue;
            }
            probe.rows(Place::Aggregate, 1);
            if show(&rows)?.is_break() {
                break;
            }
        }
        Ok(())
    }
}

fn window_is_empty(limit: Option<u64>) -> bool {
    limit == Some(0)
}
