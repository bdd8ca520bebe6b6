//! Rows to the client, in the formats that it wants.

use std::{ops::ControlFlow, sync::Arc};

use freshet_postgres::{Encoding, Field, Format, Out, Report, Row, Severity};
use freshet_sql::{
    SqlError, Value, ValueRef,
    general::ResultColumn,
    memory::{Pool, Reservation, size_of_value},
    types::{EvalContext, Kind, array::ArrayRef, binary, text},
    work,
};

use super::encoding::encoded;
use crate::{
    bind::select::Output,
    execute::Sink,
    expression::{Environment, Source},
};

/// The columns as the protocol describes them.
pub fn fields<'c>(columns: &'c [ResultColumn], formats: &'c [Format]) -> impl Iterator<Item = Field<'c>> {
    columns.iter().enumerate().map(|(number, column)| {
        let (table, place) = column.origin.unwrap_or((0, 0));
        let kind = match column.ty.kind() {
            Kind::Unknown => Kind::Text,
            kind => kind,
        };
        Field {
            name: &column.name,
            table,
            column: place,
            type_oid: kind.oid(),
            type_size: kind.length(),
            type_modifier: column.ty.modifier(),
            format: format_of(formats, number),
        }
    })
}

/// The format of a column: one for all, or each its own; text if none is named.
fn format_of(formats: &[Format], column: usize) -> Format {
    match formats {
        [] => Format::Text,
        [one] => *one,
        all => all.get(column).copied().unwrap_or(Format::Text),
    }
}

/// Values are counted from this number of bytes on, while they are on their way to the client.
const LARGE: usize = 64 << 10;

/// What a row takes that is on its way to the client.
#[derive(Debug, Default)]
pub struct OnItsWay(Option<Reservation>);

impl OnItsWay {
    /// Takes what a value is going to take when it is written: as it comes, and in the row.
    ///
    /// # Errors
    /// 53200.
    pub fn take(&mut self, memory: &Arc<Pool>, value: ValueRef<'_>) -> Result<(), SqlError> {
        let bytes = match value {
            ValueRef::Text(text) | ValueRef::Char(text) | ValueRef::Json(text) | ValueRef::Jsonb(text) => text.len(),
            // In digits.
            ValueRef::Bytea(bytes) => 2 * bytes.len(),
            ValueRef::Array(ArrayRef::Stored(bytes)) => bytes.len(),
            ValueRef::Array(ArrayRef::Value(array)) => array.values().iter().map(size_of_value).sum(),
            _ => return Ok(()),
        };
        if bytes < LARGE { Ok(()) } else { self.0.get_or_insert_with(|| memory.reserve()).take(2 * bytes) }
    }

    /// The row was written; `writes` is how often the client had been written to before. Where it
    /// has not read the row, that is still there, and so is this.
    ///
    /// # Errors
    /// When the statement is to end, which may have waited for the client: 57014, 57P01.
    pub fn written(self, out: &mut Out, writes: &mut u64) -> Result<(), SqlError> {
        if out.is_behind()
            && let Some(held) = self.0
        {
            out.hold(held);
        }
        if std::mem::replace(writes, out.writes()) == out.writes() { Ok(()) } else { work::check() }
    }
}

/// Writes rows as they come.
pub struct Wire<'o> {
    out: &'o mut Out,
    /// From where it is taken what is on its way.
    memory: Arc<Pool>,
    kinds: Vec<(Kind, Format)>,
    scratch: String,
    /// The client's encoding, if values are converted for it.
    encoding: Option<Encoding>,
    /// How often the client was written to.
    writes: u64,
}

impl<'o> Wire<'o> {
    /// To a client.
    pub fn new(out: &'o mut Out, memory: &Arc<Pool>, columns: &[ResultColumn], formats: &[Format]) -> Self {
        let kinds = columns.iter().enumerate();
        let kinds = kinds.map(|(number, column)| (column.ty.kind(), format_of(formats, number))).collect();
        let encoding = Some(out.encoding()).filter(|encoding| !encoding.is_utf8());
        let writes = out.writes();
        Self { out, memory: Arc::clone(memory), kinds, scratch: String::new(), encoding, writes }
    }

    fn write(
        row: &mut Row<'_>,
        scratch: &mut String,
        (kind, format): (Kind, Format),
        value: ValueRef<'_>,
        context: &EvalContext<'_>,
    ) {
        match (value, format) {
            (ValueRef::Null, _) => row.null(),
            (value, Format::Binary) => binary::output(value, row.value()),
            (ValueRef::Text(text) | ValueRef::Json(text) | ValueRef::Jsonb(text), Format::Text) => {
                row.bytes(text.as_bytes());
            }
            (ValueRef::Int4(number), Format::Text) => row.text(number),
            (ValueRef::Int8(number), Format::Text) => row.text(number),
            (value, Format::Text) => {
                scratch.clear();
                text::output_as(kind, value, context, scratch);
                row.bytes(scratch.as_bytes());
                scratch.shrink_to(LARGE);
            }
        }
    }

    #[cold]
    fn write_in(
        encoding: Encoding,
        row: &mut Row<'_>,
        kind: (Kind, Format),
        value: ValueRef<'_>,
        context: &EvalContext<'_>,
    ) -> Result<(), SqlError> {
        if value.is_null() {
            row.null();
            return Ok(());
        }
        encoded(encoding, kind, value, context, row.value())
    }

    /// One row of values.
    ///
    /// # Errors
    /// When it cannot be delivered.
    pub fn one(&mut self, values: &[Value], context: &EvalContext<'_>) -> Result<(), SqlError> {
        let mut on_its_way = OnItsWay::default();
        for value in values {
            on_its_way.take(&self.memory, value.as_ref())?;
        }
        let mut row = self.out.row();
        for (value, kind) in values.iter().zip(&self.kinds) {
            match self.encoding {
                None => Self::write(&mut row, &mut self.scratch, *kind, value.as_ref(), context),
                Some(encoding) => Self::write_in(encoding, &mut row, *kind, value.as_ref(), context)?,
            }
        }
        row.finish().map_err(undelivered)?;
        on_its_way.written(self.out, &mut self.writes)
    }
}

/// Rows to the client.
pub struct WireSink<'o, 'c> {
    /// Where they are written to.
    pub wire: Wire<'o>,
    /// What the text of values depends on: the time zone, formats.
    pub context: &'c EvalContext<'c>,
}

impl Sink for WireSink<'_, '_> {
    fn row(
        &mut self,
        output: &[Output],
        rows: &[Source<'_>],
        environment: &Environment<'_>,
    ) -> Result<ControlFlow<()>, SqlError> {
        let Wire { out, memory, kinds, scratch, encoding, writes } = &mut self.wire;
        let mut on_its_way = OnItsWay::default();
        let mut row = out.row();
        for (output, kind) in output.iter().zip(kinds.iter()) {
            let mut hold = Value::Null;
            let value = output.expression.look(rows, environment, &mut hold)?;
            on_its_way.take(memory, value)?;
            match *encoding {
                None => Wire::write(&mut row, scratch, *kind, value, self.context),
                Some(encoding) => Wire::write_in(encoding, &mut row, *kind, value, self.context)?,
            }
        }
        row.finish().map_err(undelivered)?;
        on_its_way.written(out, writes)?;
        Ok(ControlFlow::Continue(()))
    }

    fn values(&mut self, values: &[Value]) -> Result<ControlFlow<()>, SqlError> {
        self.wire.one(values, self.context)?;
        Ok(ControlFlow::Continue(()))
    }
}

/// What the protocol says of a row that it cannot deliver.
#[cold]
pub fn undelivered(report: Report) -> SqlError {
    SqlError::new(freshet_sql::SqlState::new(report.state().as_str()), report.message().to_owned())
}

/// A notice as the protocol has it.
pub fn notice(notice: SqlError) -> Report {
    report_of(Severity::Notice, notice)
}

/// A warning, as the protocol has it.
pub fn warning(warning: SqlError) -> Report {
    report_of(Severity::Warning, warning)
}

fn report_of(severity: Severity, what: SqlError) -> Report {
    let fields = what.into_report();
    let state = freshet_postgres::SqlState::new(fields.state.code());
    let mut report = Report::new(severity, state, fields.message.into_owned());
    if let Some(detail) = fields.detail {
        report = report.detail(detail);
    }
    if let Some(hint) = fields.hint {
        report = report.hint(hint);
    }
    if let Some(position) = fields.position {
        report = report.position(position);
    }
    report
}

/// An error as the protocol tells it.
pub fn report(error: SqlError) -> Report {
    let fields = error.into_report();
    let state = freshet_postgres::SqlState::new(fields.state.code());
    let message = fields.message.into_owned();
    let mut report = match fields.state.code() {
        // The connection has to end with these.
        "57P01" | "57P03" | "57P04" | "08006" => Report::fatal(state, message),
        _ => Report::error(state, message),
    };
    if let Some(detail) = fields.detail {
        report = report.detail(detail);
    }
    if let Some(hint) = fields.hint {
        report = report.hint(hint);
    }
    if let Some(position) = fields.position {
        report = report.position(position);
    }
    if let Some((schema, name)) = fields.table {
        report = report.table(schema, name);
    }
    if let Some(column) = fields.column {
        report = report.column(column);
    }
    if let Some(data_type) = fields.data_type {
        report = report.data_type(data_type);
    }
    if let Some(constraint) = fields.constraint {
        report = report.constraint(constraint);
    }
    if let Some(routine) = fields.routine {
        report = report.routine(routine);
    }
    report
}
