//! What is computed for groups.

use std::collections::HashSet;

use freshet_sql::{
    SqlError, SqlState, Value,
    functions::resolve,
    memory::{Reservation, size_of_value},
    types::{EvalContext, Kind, Numeric},
};

use crate::{
    bind::aggregate::{Aggregate, AggregateCall},
    expression::{Environment, Source},
};

/// One aggregate over the rows of one group.
#[derive(Debug)]
pub struct Accumulator<'c> {
    call: &'c AggregateCall,
    count: i64,
    whole: i128,
    value: Value,
    seen: HashSet<Value>,
}

impl<'c> Accumulator<'c> {
    /// Over no row yet.
    pub fn new(call: &'c AggregateCall) -> Self {
        Self { call, count: 0, whole: 0, value: Value::Null, seen: HashSet::new() }
    }

    /// One more row.
    ///
    /// # Errors
    /// What goes wrong in the argument; 22003; 53200.
    pub fn add(
        &mut self,
        rows: &[Source<'_>],
        environment: &Environment<'_>,
        kept: &Reservation,
    ) -> Result<(), SqlError> {
        if let Some(filter) = &self.call.filter
            && !filter.holds(rows, environment)?
        {
            return Ok(());
        }
        let Some(argument) = &self.call.argument else {
            self.count += 1;
            return Ok(());
        };
        let mut hold = Value::Null;
        let value = argument.look(rows, environment, &mut hold)?;
        if value.is_null() {
            return Ok(());
        }
        if self.call.distinct {
            let value = value.to_value();
            kept.take(if self.seen.contains(&value) { 0 } else { size_of_value(&value) })?;
            if !self.seen.insert(value) {
                return Ok(());
            }
        }
        self.count += 1;
        match self.call.aggregate {
            Aggregate::CountRows | Aggregate::Count => {}
            Aggregate::Sum | Aggregate::Average => match value.to_value().as_i64() {
                // 2^63 rows of the largest values do not overflow this.
                Some(number) => self.whole += i128::from(number),
                None if self.value.is_null() => self.value = value.to_value(),
                None => {
                    let plus = resolve("+", &[self.call.kind, self.call.kind])?;
                    let sum = [std::mem::take(&mut self.value), value.to_value()];
                    self.value = plus.function.call(&sum, environment.context)?;
                }
            },
            Aggregate::Least => {
                if self.value.is_null() || value.compare(self.value.as_ref()).is_lt() {
                    self.value = value.to_value();
                }
            }
            Aggregate::Greatest => {
                if self.value.is_null() || value.compare(self.value.as_ref()).is_gt() {
                    self.value = value.to_value();
                }
            }
            Aggregate::Every | Aggregate::Some => {
                let truth = matches!(value.to_value(), Value::Bool(true));
                let so_far = self.value.as_bool();
                let all = self.call.aggregate == Aggregate::Every;
                self.value = Value::Bool(match so_far {
                    None => truth,
                    Some(so_far) if all => so_far && truth,
                    Some(so_far) => so_far || truth,
                });
            }
        }
        Ok(())
    }

    /// The result.
    ///
    /// # Errors
    /// 22003 when it is too large.
    pub fn finish(self, context: &EvalContext<'_>) -> Result<Value, SqlError> {
        let too_large = || SqlError::new(SqlState::NUMERIC_VALUE_OUT_OF_RANGE, "bigint out of range");
        let numeric = |number: i128| Value::Numeric(Numeric::from(number));
        let is_whole = matches!(self.call.kind, Kind::Int2 | Kind::Int4 | Kind::Int8);
        Ok(match self.call.aggregate {
            Aggregate::CountRows | Aggregate::Count => Value::Int8(self.count),
            _ if self.count == 0 => Value::Null,
            Aggregate::Sum if is_whole => match self.call.ty.kind() {
                Kind::Int8 => Value::Int8(i64::try_from(self.whole).map_err(|_| too_large())?),
                _ => numeric(self.whole),
            },
            Aggregate::Average => {
                let sum = if is_whole { numeric(self.whole) } else { self.value };
                let count = match self.call.kind {
                    Kind::Float8 | Kind::Interval => Value::Float8(self.count as f64),
                    _ => numeric(self.count.into()),
                };
                let kinds = [sum.kind().unwrap_or(Kind::Numeric), count.kind().unwrap_or(Kind::Numeric)];
                resolve("/", &kinds)?.function.call(&[sum, count], context)?
            }
            _ => self.value,
        })
    }
}
