//! COPY between the client and the tables.

use std::ops::ControlFlow;

use freshet_postgres::{Client, CopyOut, EncodedStream, Encoding, Format as WireFormat};
use freshet_sql::{
    SqlError, SqlState, Type, Value, ValueRef,
    general::ResultColumn,
    types::{EvalContext, binary as binary_values, text as text_values},
};
use sqlparser::{
    ast::{Ident, ObjectName, Statement},
    parser::Parser,
};

use super::{
    Session,
    encoding::{decoded, encoded},
    parse::{Parsed, parse},
    prepare::{Plan, Prepared},
    statement::Tag,
    wire::{report, undelivered},
};
use crate::{
    bind::{Stop, modify::InsertPlan, select::Output},
    copy::{self, Fields, Format, Kind, binary, csv, syntax, text},
    execute::{Sink, modify::Collected},
    expression::{Environment, Source},
    syntax::PostgreSql,
};

/// Rows to the client, as a file has them.
struct CopySink<'o, 'c> {
    out: CopyOut<'o>,
    format: &'c Format,
    columns: &'c [ResultColumn],
    context: &'c EvalContext<'c>,
    scratch: String,
    /// The client's encoding.
    encoding: Encoding,
    /// Whether the header of a binary copy is still to come: clients expect it in one piece with what follows.
    header: bool,
}

/// Converts what was written from a place on.
fn converted(encoding: Encoding, data: &mut Vec<u8>, from: usize) -> Result<(), SqlError> {
    if encoding.is_utf8() || data[from..].is_ascii() {
        return Ok(());
    }
    let written = String::from_utf8_lossy(&data[from..]).into_owned();
    data.truncate(from);
    encoding.encode(&written, data).map_err(undelivered)
}

impl CopySink<'_, '_> {
    fn line<'v>(&mut self, mut value: impl FnMut(usize) -> Result<ValueRef<'v>, SqlError>) -> Result<(), SqlError> {
        let Self { out, format, columns, context, scratch, encoding, header } = self;
        let mut piece = out.piece();
        let data = piece.data();
        if std::mem::take(header) {
            binary::header(data);
        }
        let begun = data.len();
        if format.kind == Kind::Binary {
            data.extend((columns.len() as i16).to_be_bytes());
        }
        for (number, column) in columns.iter().enumerate() {
            let value = value(number)?;
            if format.kind == Kind::Binary {
                let place = data.len();
                data.extend((-1_i32).to_be_bytes());
                if !value.is_null() && !encoding.is_utf8() {
                    encoded(*encoding, (column.ty.kind(), WireFormat::Binary), value, context, data)?;
                } else if !value.is_null() {
                    binary_values::output(value, data);
                }
                if !value.is_null() {
                    let length = (data.len() - place - 4) as i32;
                    data[place..place + 4].copy_from_slice(&length.to_be_bytes());
                }
                continue;
            }
            if number > 0 {
                data.push(format.delimiter);
            }
            if value.is_null() {
                data.extend_from_slice(format.null.as_bytes());
                continue;
            }
            scratch.clear();
            text_values::output_as(column.ty.kind(), value, context, scratch);
            match format.kind {
                Kind::Csv => {
                    let forced = format.force_quote.iter().any(|name| name == "*" || *name == column.name);
                    csv::write(scratch, format, forced, data);
                }
                _ => text::write(scratch, format.delimiter, data),
            }
        }
        if format.kind != Kind::Binary {
            data.push(b'\n');
            converted(*encoding, data, begun)?;
        }
        piece.finish().map_err(undelivered)
    }
}

impl CopySink<'_, '_> {
    /// Writes what comes before the first row.
    fn begin(&mut self) -> Result<(), SqlError> {
        let Self { out, format, columns, encoding, .. } = self;
        if !format.header {
            return Ok(());
        }
        let mut piece = out.piece();
        let data = piece.data();
        let begun = data.len();
        for (number, column) in columns.iter().enumerate() {
            if number > 0 {
                data.push(format.delimiter);
            }
            match format.kind {
                Kind::Csv => csv::write(&column.name, format, false, data),
                _ => text::write(&column.name, format.delimiter, data),
            }
        }
        data.push(b'\n');
        converted(*encoding, data, begun)?;
        piece.finish().map_err(undelivered)
    }

    /// Writes what comes behind the last row.
    fn end(mut self) -> Result<(), SqlError> {
        if self.format.kind == Kind::Binary {
            let mut piece = self.out.piece();
            if self.header {
                binary::header(piece.data());
            }
            binary::trailer(piece.data());
            piece.finish().map_err(undelivered)?;
        }
        self.out.finish();
        Ok(())
    }
}

impl Sink for CopySink<'_, '_> {
    fn row(
        &mut self,
        output: &[Output],
        rows: &[Source<'_>],
        environment: &Environment<'_>,
    ) -> Result<ControlFlow<()>, SqlError> {
        let values = output.iter().map(|output| output.expression.evaluate(rows, environment));
        let values = values.collect::<Result<Vec<_>, _>>()?;
        self.values(&values)
    }

    fn values(&mut self, values: &[Value]) -> Result<ControlFlow<()>, SqlError> {
        self.line(|number| Ok(values.get(number).map_or(ValueRef::Null, Value::as_ref)))?;
        Ok(ControlFlow::Continue(()))
    }
}

impl Session<'_> {
    /// COPY.
    ///
    /// # Errors
    /// What goes wrong in rows or tables; 22P04 when what comes is no such file.
    pub(super) fn copy(&mut self, copy: &syntax::Copy, client: &mut Client<'_>) -> Result<Tag, SqlError> {
        if copy.to { self.copy_out(copy, client) } else { self.copy_in(copy, client) }
    }

    fn copy_out(&mut self, copy: &syntax::Copy, client: &mut Client<'_>) -> Result<Tag, SqlError> {
        let statement = match &copy.source {
            syntax::Source::Query(query) => Parsed::sql(Statement::Query(query.clone())),
            syntax::Source::Table(name, columns) => {
                let columns = columns.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                let sql = format!("SELECT {} FROM {name}", if columns.is_empty() { "*" } else { &columns });
                parse(&sql)?.pop().ok_or_else(|| SqlError::internal("a query of a table is none"))?
            }
        };
        let prepared = Prepared::new("", Some(statement), Vec::new());
        let mut planned = self.plan(&prepared)?;
        if planned.locks() {
            self.may_write("COPY TO")?;
        }
        let interrupted = self.interruption();
        if let Some(made) = self.lock_for(&prepared, &planned, &interrupted)? {
            planned = made;
        }
        let columns = planned.columns.as_deref().unwrap_or_default();
        let wire = if copy.format.kind == Kind::Binary { WireFormat::Binary } else { WireFormat::Text };
        if copy.format.header && copy.format.kind == Kind::Binary {
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, "cannot specify HEADER in BINARY mode"));
        }
        if planned.locks() {
            self.may_write("SELECT FOR UPDATE")?;
        }
        self.with_run(&*planned, &planned.firsts, &[], |run, planned| {
            let encoding = client.encoding();
            let out = client.copy_out(wire, &vec![wire; columns.len()]);
            let context = run.environment.context;
            let header = copy.format.kind == Kind::Binary;
            let mut sink =
                CopySink { out, format: &copy.format, columns, context, scratch: String::new(), encoding, header };
            sink.begin()?;
            let count = match &planned.plan {
                Plan::Select(plan) => run.select(plan, &mut sink, ())?,
                Plan::General(query) => run.general(query, &mut sink)?,
                _ => return Err(SqlError::internal("COPY of something that is no query")),
            };
            sink.end()?;
            Ok(Tag(format!("COPY {count}")))
        })
    }

    /// The insertion that COPY to a table's columns is.
    fn insertion(&self, name: &ObjectName, columns: &[Ident]) -> Result<InsertPlan, SqlError> {
        let list = columns.iter().map(ToString::to_string).collect::<Vec<_>>();
        // As many values as there are columns, of which only the places count.
        let sql = if list.is_empty() {
            let info = self.with_binder(|binder, _| binder.table(name).map_err(Stop::into_error))?;
            let names = info
                .table
                .visible_columns()
                .map(|(_, column)| freshet_sql::functions::quote_identifier(&column.name).to_string());
            names.collect()
        } else {
            list
        };
        let values = vec!["NULL"; sql.len()].join(", ");
        // Columns that are GENERATED ALWAYS take what the file has: see [`crate::syntax`].
        let insert = format!("INSERT OVERWRITE INTO {name} ({}) VALUES ({values})", sql.join(", "));
        let insert = Parser::parse_sql(&PostgreSql, &insert)
            .map_err(|cause| SqlError::internal(format!("a statement made for COPY cannot be read: {cause}")))?;
        let Some(Statement::Insert(insert)) = insert.into_iter().next() else {
            return Err(SqlError::internal("a statement made for COPY is no INSERT"));
        };
        self.with_binder(|binder, _| binder.insert(&insert, None).map_err(Stop::into_error))
    }

    fn copy_in(&mut self, copy: &syntax::Copy, client: &mut Client<'_>) -> Result<Tag, SqlError> {
        self.may_write("COPY FROM")?;
        let syntax::Source::Table(name, columns) = &copy.source else {
            return Err(SqlError::internal("COPY of a query from the client"));
        };
        let interrupted = self.interruption();
        let plan = loop {
            let plan = self.insertion(name, columns)?;
            if self.lock_written([plan.table.table.oid].into_iter(), &interrupted)? {
                break plan;
            }
            self.see_definitions()?;
        };
        let types: Vec<Type> = plan.targets.iter().map(|target| plan.table.column_type(*target)).collect();
        let names: Vec<&str> =
            plan.targets.iter().map(|target| plan.table.table.columns[*target].name.as_str()).collect();
        let is_binary = copy.format.kind == Kind::Binary;
        let encoding = client.encoding();
        let wire = if is_binary { WireFormat::Binary } else { WireFormat::Text };
        let named = |list: &[String], name: &str| list.iter().any(|other| other == "*" || other == name);
        let never_null: Vec<bool> = names.iter().map(|name| named(&copy.format.force_not_null, name)).collect();
        let maybe_null: Vec<bool> = names.iter().map(|name| named(&copy.format.force_null, name)).collect();
        self.with_run(&plan, &[], &[], |run, plan| {
            let mut count = 0_u64;
            let mut values = Vec::with_capacity(types.len());
            let mut nothing = Collected::default();
            let mut row = |fields: &Fields| -> Result<(), SqlError> {
                if fields.len() > types.len() {
                    return Err(copy::bad_format("extra data after last expected column"));
                }
                if fields.len() < types.len() {
                    let missing = names[fields.len()];
                    return Err(copy::bad_format(format!("missing data for column \"{missing}\"")));
                }
                values.clear();
                for (number, ty) in types.iter().enumerate() {
                    let (raw, quoted) = fields.raw(number);
                    let mut field = fields.get(number);
                    if never_null[number] && !quoted && field.is_none() {
                        field = Some(raw);
                    }
                    if maybe_null[number] && quoted && raw == copy.format.null.as_bytes() {
                        field = None;
                    }
                    values.push(match field {
                        None => Value::Null,
                        Some(bytes) if is_binary => {
                            let bytes = decoded(encoding, ty.kind(), WireFormat::Binary, bytes)?;
                            binary_values::input(*ty, &bytes)?
                        }
                        Some(bytes) => text_values::input(*ty, text_values::decode(bytes)?, run.environment.context)?,
                    });
                }
                count += run.insert_row(plan, &values, &mut nothing)?;
                Ok(())
            };
            let mut decoder = copy::decoder(&copy.format, types.len());
            // Lines are looked for in UTF-8: in some encodings a backslash can be half of a
            // character.
            let mut stream = (!is_binary && !encoding.is_utf8()).then(|| EncodedStream::new(encoding));
            let mut text = String::new();
            let mut data = client.copy_in(wire, &vec![wire; types.len()]).map_err(undelivered)?;
            loop {
                let mut stopped = None;
                let mut look = || {
                    (run.interrupted)().map_err(|error| {
                        stopped = Some(error.clone());
                        report(error)
                    })
                };
                let piece = data.next_unless(&mut look);
                let Some(piece) = piece.map_err(|cause| stopped.unwrap_or_else(|| undelivered(cause)))? else { break };
                match &mut stream {
                    None => decoder.feed(piece, &mut row)?,
                    Some(stream) => {
                        text.clear();
                        stream.feed(piece, false, &mut text).map_err(undelivered)?;
                        decoder.feed(text.as_bytes(), &mut row)?;
                    }
                }
            }
            if let Some(stream) = &mut stream {
                stream.feed(b"", true, &mut text).map_err(undelivered)?;
            }
            decoder.finish(&mut row)?;
            run.finish()?;
            Ok(Tag(format!("COPY {count}")))
        })
    }
}
