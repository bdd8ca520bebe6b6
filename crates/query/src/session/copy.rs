//! COPY between the client and the tables.

use std::{ops::ControlFlow, sync::Arc};

use freshet_engine::NotRecorded;
use freshet_postgres::{Client, CopyOut, EncodedStream, Encoding, Format as WireFormat};
use freshet_sql::{
    SqlError, SqlState, Type, Value, ValueRef,
    general::ResultColumn,
    memory::Pool,
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
    wire::{OnItsWay, report, undelivered},
};
use crate::{
    bind::{Stop, modify::InsertPlan, name_of, parts_of, select::Output},
    copy::{self, Fields, Format, Header, Kind, binary, csv, syntax, text},
    execute::{Sink, modify::Collected},
    expression::{Environment, Source},
    schema::Named,
    syntax::PostgreSql,
};

/// Rows to the client, as a file has them.
struct CopySink<'o, 'c> {
    out: CopyOut<'o>,
    /// From where it is taken what is on its way.
    memory: &'c Arc<Pool>,
    format: &'c Format,
    columns: &'c [ResultColumn],
    context: &'c EvalContext<'c>,
    scratch: String,
    /// The client's encoding.
    encoding: Encoding,
    /// Which columns are quoted whatever they hold.
    forced: Vec<bool>,
    /// Whether the header of a binary copy is still to come: clients expect it in one piece with
    /// what follows.
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
        let Self { out, memory, format, columns, context, scratch, encoding, forced, header } = self;
        let mut on_its_way = OnItsWay::default();
        let mut writes = out.out().writes();
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
            on_its_way.take(memory, value)?;
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
                    csv::write(scratch, format, forced[number], columns.len() == 1, data);
                }
                _ => text::write(scratch, format.delimiter, data),
            }
        }
        if format.kind != Kind::Binary {
            data.push(b'\n');
            converted(*encoding, data, begun)?;
        }
        piece.finish().map_err(undelivered)?;
        on_its_way.written(out.out(), &mut writes)
    }
}

impl CopySink<'_, '_> {
    /// Writes what comes before the first row.
    fn begin(&mut self) -> Result<(), SqlError> {
        let Self { out, format, columns, encoding, .. } = self;
        if format.header == Header::None {
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
                Kind::Csv => csv::write(&column.name, format, false, columns.len() == 1, data),
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

fn name_of_relation(name: &ObjectName) -> Option<String> {
    parts_of(name).ok()?.pop()
}

/// Which of the copied columns are in an option's list. `all` are those of the relation.
fn flags(
    list: &[String],
    copied: &[String],
    all: &[String],
    relation: Option<String>,
    option: &str,
) -> Result<Vec<bool>, SqlError> {
    for (at, name) in list.iter().enumerate() {
        if !all.contains(name) {
            let of = relation.map(|name| format!(" of relation \"{name}\"")).unwrap_or_default();
            let message = format!("column \"{name}\"{of} does not exist");
            return Err(SqlError::new(SqlState::UNDEFINED_COLUMN, message));
        }
        if list[..at].contains(name) {
            let message = format!("column \"{name}\" specified more than once");
            return Err(SqlError::new(SqlState::DUPLICATE_COLUMN, message));
        }
    }
    if let Some(name) = list.iter().find(|name| !copied.contains(name)) {
        let message = format!("{option} column \"{name}\" not referenced by COPY");
        return Err(SqlError::new(SqlState::INVALID_COLUMN_REFERENCE, message));
    }
    Ok(copied.iter().map(|name| list.contains(name)).collect())
}

impl Session<'_> {
    /// COPY.
    ///
    /// # Errors
    /// What goes wrong in rows or tables; 22P04 when what comes is no such file.
    pub(super) fn copy(&mut self, copy: &syntax::Copy, client: &mut Client<'_>) -> Result<Tag, SqlError> {
        if copy.to {
            return self.copy_out(copy, client);
        }
        let copied = self.copy_in(copy, client);
        self.keep_records(NotRecorded::Bulk);
        copied
    }

    fn copy_out(&mut self, copy: &syntax::Copy, client: &mut Client<'_>) -> Result<Tag, SqlError> {
        let (statement, list) = match &copy.source {
            syntax::Source::Query(query) => {
                copy.options.format(true)?;
                (Parsed::sql(Statement::Query(query.clone())), None)
            }
            syntax::Source::Table(name, columns) => {
                if let Some(what) = self.no_table(name)? {
                    let error = SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("cannot copy from {what}"));
                    return Err(error.with_hint("Try the COPY (SELECT ...) TO variant."));
                }
                let names: Vec<String> = columns.iter().map(name_of).collect();
                let columns = columns.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                let sql = format!("SELECT {} FROM {name}", if columns.is_empty() { "*" } else { &columns });
                let query = parse(&sql)?.pop();
                (query.ok_or_else(|| SqlError::internal("a query of a table is none"))?, Some((name, names)))
            }
        };
        let prepared = Prepared::new("", Some(statement), Vec::new());
        let mut planned = self.plan(&prepared)?;
        let all = match &list {
            Some((name, names)) if !names.is_empty() => self.columns_of(name)?,
            _ => Vec::new(),
        };
        if let Some((name, names)) = &list {
            flags(names, &all, &all, name_of_relation(name), "")?;
        }
        let format = &copy.options.format(true)?;
        match &planned.plan {
            Plan::Insert(_) => self.may_write("INSERT")?,
            Plan::Update(_) => self.may_write("UPDATE")?,
            Plan::Delete(_) => self.may_write("DELETE")?,
            _ if planned.locks() => self.may_write("SELECT FOR UPDATE")?,
            _ => {}
        }
        if planned.columns.is_none() {
            let message = "COPY query must have a RETURNING clause";
            return Err(SqlError::new(SqlState::FEATURE_NOT_SUPPORTED, message));
        }
        let interrupted = self.interruption();
        if let Some(made) = self.lock_for(&prepared, &planned, &interrupted)? {
            planned = made;
        }
        if planned.writes_to().is_some() {
            self.keep_records(NotRecorded::Undetermined);
        }
        let columns = planned.columns.as_deref().unwrap_or_default();
        let names: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        let all = if all.is_empty() { &names } else { &all };
        let relation = list.as_ref().and_then(|(name, _)| name_of_relation(name));
        let forced = match format.force_quote.as_slice() {
            [all] if all == "*" => vec![true; names.len()],
            list => flags(list, &names, all, relation, "FORCE_QUOTE")?,
        };
        let wire = if format.kind == Kind::Binary { WireFormat::Binary } else { WireFormat::Text };
        let memory = &self.state.memory;
        self.with_run(&*planned, &planned.firsts, &[], |run, planned| {
            let encoding = format.encoding.unwrap_or(client.encoding());
            let out = client.copy_out(wire, &vec![wire; columns.len()]);
            let context = run.environment.context;
            let header = format.kind == Kind::Binary;
            let scratch = String::new();
            let mut sink = CopySink { out, memory, format, columns, context, scratch, encoding, forced, header };
            sink.begin()?;
            let count = match &planned.plan {
                Plan::Select(plan) => run.select(plan, &mut sink, ())?,
                Plan::General(query) => run.general(query, &mut sink)?,
                Plan::Insert(plan) => run.insert(plan, &mut sink, ())?,
                Plan::Update(plan) => run.update(plan, &mut sink, ())?,
                Plan::Delete(plan) => run.delete(plan, &mut sink, ())?,
                Plan::Utility => return Err(SqlError::internal("COPY of something that is no query")),
            };
            run.finish()?;
            sink.end()?;
            Ok(Tag(format!("COPY {count}")))
        })
    }

    /// What a name means that is no table, as COPY says it.
    fn no_table(&self, name: &ObjectName) -> Result<Option<String>, SqlError> {
        let Some(relation) = name_of_relation(name) else { return Ok(None) };
        self.with_binder(|binder, _| {
            Ok(match binder.relation(name) {
                Ok(Named::View(_)) => Some(format!("view \"{relation}\"")),
                Ok(Named::Sequence(_)) => Some(format!("sequence \"{relation}\"")),
                // What else is wrong is found out later.
                _ => None,
            })
        })
    }

    /// The columns of a table.
    fn columns_of(&self, name: &ObjectName) -> Result<Vec<String>, SqlError> {
        let info = self.with_binder(|binder, _| binder.table(name).map_err(Stop::into_error))?;
        Ok(info.table.visible_columns().map(|(_, column)| column.name.clone()).collect())
    }

    /// The insertion that COPY to a table's columns is.
    fn insertion(&self, name: &ObjectName, columns: &[Ident]) -> Result<InsertPlan, SqlError> {
        let list = columns.iter().map(ToString::to_string).collect::<Vec<_>>();
        // As many values as there are columns; only their places count.
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
        let insert = match sql.as_slice() {
            [] => format!("INSERT OVERWRITE INTO {name} DEFAULT VALUES"),
            names => format!("INSERT OVERWRITE INTO {name} ({}) VALUES ({values})", names.join(", ")),
        };
        let insert = Parser::parse_sql(&PostgreSql, &insert)
            .map_err(|cause| SqlError::internal(format!("a statement made for COPY cannot be read: {cause}")))?;
        let Some(Statement::Insert(insert)) = insert.into_iter().next() else {
            return Err(SqlError::internal("a statement made for COPY is no INSERT"));
        };
        let inserted = self.with_binder(|binder, _| binder.insert(&insert, None).map_err(Stop::into_error))?;
        self.check_rights_now(&Prepared::new("", Some(Parsed::sql(Statement::Insert(insert))), Vec::new()))?;
        Ok(inserted)
    }

    fn copy_in(&mut self, copy: &syntax::Copy, client: &mut Client<'_>) -> Result<Tag, SqlError> {
        self.may_write("COPY FROM")?;
        let syntax::Source::Table(name, columns) = &copy.source else {
            return Err(SqlError::internal("COPY of a query from the client"));
        };
        if let Some(what) = self.no_table(name)? {
            let error = SqlError::new(SqlState::WRONG_OBJECT_TYPE, format!("cannot copy to {what}"));
            return Err(match what.starts_with("view") {
                true => error.with_hint("To enable copying to a view, provide an INSTEAD OF INSERT trigger."),
                false => error,
            });
        }
        let interrupted = self.interruption();
        let plan = loop {
            let plan = self.insertion(name, columns)?;
            if self.lock_tables(Some(plan.table.table.oid), std::iter::empty(), &interrupted)? {
                break plan;
            }
            self.see_definitions()?;
        };
        let types: Vec<Type> = plan.targets.iter().map(|target| plan.table.column_type(*target)).collect();
        let names: Vec<&str> =
            plan.targets.iter().map(|target| plan.table.table.columns[*target].name.as_str()).collect();
        let format = &copy.options.format(false)?;
        let is_binary = format.kind == Kind::Binary;
        let encoding = format.encoding.unwrap_or(client.encoding());
        let wire = if is_binary { WireFormat::Binary } else { WireFormat::Text };
        let copied: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let all: Vec<String> = plan.table.table.visible_columns().map(|(_, column)| column.name.clone()).collect();
        let relation = || name_of_relation(name);
        let never_null = flags(&format.force_not_null, &copied, &all, relation(), "FORCE_NOT_NULL")?;
        let maybe_null = flags(&format.force_null, &copied, &all, relation(), "FORCE_NULL")?;
        self.with_run(&plan, &[], &[], |run, plan| {
            let mut count = 0_u64;
            let mut values = Vec::with_capacity(types.len());
            let mut nothing = Collected::default();
            let mut row = |fields: &Fields| -> Result<(), SqlError> {
                if fields.len() > types.len() {
                    return Err(copy::bad_format("extra data after last expected column"));
                }
                values.clear();
                for (number, ty) in types.iter().enumerate() {
                    if number >= fields.len() {
                        let missing = names[number];
                        return Err(copy::bad_format(format!("missing data for column \"{missing}\"")));
                    }
                    let (raw, quoted) = fields.raw(number);
                    let mut field = fields.get(number);
                    if never_null[number] && !quoted && field.is_none() {
                        field = Some(raw);
                    }
                    if maybe_null[number] && quoted && raw == format.null.as_bytes() {
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
            let mut decoder = copy::decoder(format, &names);
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
