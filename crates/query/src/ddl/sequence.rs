//! CREATE and ALTER SEQUENCE, and the sequences of columns.

use std::sync::Arc;

use freshet_sql::{SqlError, SqlState, Type, types::Kind};

use super::{
    expression::objects_of,
    syntax::{AlterSequence, CreateSequence, Name, SequenceOptions},
    work::{Step, Work, error},
};
use crate::{
    bind::not_supported,
    schema::{Entry, Named, Object, Oid, Sequence, TableInfo},
};

impl Work<'_, '_, '_> {
    /// A number for a sequence's state that no other has.
    pub(super) fn take_state(&mut self) -> Result<u64, SqlError> {
        let number = getrandom::u64();
        let number = number.map_err(|cause| error(SqlState::SYSTEM_ERROR, format!("no random number: {cause}")))?;
        self.ddl.effects.touch_state(self.ddl.catalog, number);
        Ok(number)
    }

    pub(super) fn create_sequence(&mut self, statement: &CreateSequence) -> Step<&'static str> {
        if statement.temporary {
            return Err(not_supported("a temporary sequence").into());
        }
        let namespace = self.place_for(&statement.name)?;
        if self.is_there(namespace, &statement.name.name, statement.if_not_exists)? {
            return Ok("CREATE SEQUENCE");
        }
        let ty = match &statement.options.ty {
            Some(ty) => Type::from_sql(ty)?,
            None => Type::INT8,
        };
        let sequence = self.new_sequence(namespace, &statement.name.name, ty)?;
        let mut sequence = with_options(sequence, &statement.options, true)?;
        if let Some(owner) = &statement.options.owned_by {
            self.own_sequence(&mut sequence, owner.as_ref())?;
        }
        self.put(Object::Sequence(sequence))?;
        Ok("CREATE SEQUENCE")
    }

    fn new_sequence(&mut self, namespace: Oid, name: &str, ty: Type) -> Result<Sequence, SqlError> {
        Ok(Sequence {
            oid: self.change.take_oid()?,
            namespace,
            name: name.to_owned(),
            owner: self.ddl.role,
            state: self.take_state()?,
            ty,
            start: 1,
            increment: 1,
            minimum: 1,
            maximum: i64::MAX,
            cache: 1,
            cycle: false,
            owned_by: None,
            grants: Vec::new(),
        })
    }

    /// Makes the sequence of a column. `names` are the schema, and the names of table and column.
    pub(super) fn make_owned_sequence(
        &mut self,
        names: (Oid, &str, &str),
        owner: Oid,
        column: (Oid, u16),
        ty: Type,
        options: &SequenceOptions,
    ) -> Result<Oid, SqlError> {
        let (namespace, table, column_name) = names;
        let (namespace, name) = match &options.name {
            Some(name) => {
                let namespace = self.place_for(name)?;
                self.is_there(namespace, &name.name, false)?;
                (namespace, name.name.clone())
            }
            None => (namespace, self.free_name(namespace, (table, column_name), "seq", &[table.to_owned()])),
        };
        let mut sequence = self.new_sequence(namespace, &name, ty)?;
        sequence.owner = owner;
        sequence.owned_by = Some(column);
        let sequence = with_options(sequence, options, true)?;
        let oid = sequence.oid;
        self.put(Object::Sequence(sequence))?;
        Ok(oid)
    }

    /// The sequences that belong to a column.
    pub(super) fn sequences_of(&self, table: Oid, column: usize) -> impl Iterator<Item = &Arc<Sequence>> {
        self.schema().entries().filter_map(move |entry| match entry {
            Entry::Sequence(sequence) if sequence.owned_by == Some((table, column as u16)) => Some(sequence),
            _ => None,
        })
    }

    /// The sequence of a column that has one: that which its values come from, if several belong to
    /// it.
    pub(super) fn sequence_of(&self, table: Oid, column: usize) -> Option<Arc<Sequence>> {
        let column_of = |info: &Arc<TableInfo>| info.table.columns.get(column)?.default.as_deref().map(objects_of);
        let used = self.schema().table(table).and_then(column_of).unwrap_or_default();
        self.sequences_of(table, column).max_by_key(|sequence| used.contains(&sequence.oid)).map(Arc::clone)
    }

    fn own_sequence(&mut self, sequence: &mut Sequence, owner: Option<&(Name, String)>) -> Result<(), SqlError> {
        let Some((table, column)) = owner else {
            sequence.owned_by = None;
            return Ok(());
        };
        let info = self.table(table)?;
        if info.table.owner != sequence.owner {
            let message = "sequence must have same owner as table it is linked to";
            return Err(error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        if info.table.namespace != sequence.namespace {
            let message = "sequence must be in same schema as table it is linked to";
            return Err(error(SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE, message));
        }
        let number = info.table.column(column).ok_or_else(|| {
            let message = format!("column \"{column}\" of relation \"{}\" does not exist", info.table.name);
            error(SqlState::UNDEFINED_COLUMN, message)
        })?;
        sequence.owned_by = Some((info.table.oid, number as u16));
        Ok(())
    }

    /// The sequence of a name.
    pub(super) fn find_sequence(&self, name: &Name) -> Result<Arc<Sequence>, SqlError> {
        match self.relation(name)? {
            Named::Sequence(oid) => self.sequence_by_oid(oid),
            _ => Err(error(SqlState::WRONG_OBJECT_TYPE, format!("\"{}\" is not a sequence", name.name))),
        }
    }

    pub(super) fn alter_sequence(&mut self, statement: &AlterSequence) -> Step<&'static str> {
        if statement.if_exists && self.find(&statement.name)?.is_none() {
            let message = format!("relation \"{}\" does not exist, skipping", statement.name);
            self.notice(SqlState::SUCCESSFUL_COMPLETION, message);
            return Ok("ALTER SEQUENCE");
        }
        let sequence = self.find_sequence(&statement.name)?;
        self.check_owner(sequence.owner, "sequence", &sequence.name)?;
        self.change_sequence((*sequence).clone(), &statement.options)?;
        Ok("ALTER SEQUENCE")
    }

    /// Changes how a sequence goes.
    pub(super) fn change_sequence(
        &mut self,
        mut sequence: Sequence,
        options: &SequenceOptions,
    ) -> Result<(), SqlError> {
        if let Some(ty) = &options.ty {
            let ty = Type::from_sql(ty)?;
            let whole = |ty| Ok((limits(ty, -1)?.0, limits(ty, 1)?.1));
            let (before, after) = (whole(sequence.ty)?, whole(ty)?);
            // Limits that were those of the type follow it.
            if sequence.minimum == before.0 {
                sequence.minimum = after.0;
            }
            if sequence.maximum == before.1 {
                sequence.maximum = after.1;
            }
            sequence.ty = ty;
        }
        let identity = sequence.owned_by.is_some_and(|(table, column)| {
            let info = self.schema().table(table);
            info.is_some_and(|info| info.table.columns[usize::from(column)].identity.is_some())
                && self.sequence_of(table, column.into()).is_some_and(|it| it.oid == sequence.oid)
        });
        let mut sequence = with_options(sequence, options, false)?;
        if let Some(owner) = &options.owned_by {
            if identity {
                let message = "cannot change ownership of identity sequence";
                return Err(error(SqlState::FEATURE_NOT_SUPPORTED, message));
            }
            self.own_sequence(&mut sequence, owner.as_ref())?;
        }
        match options.restart {
            Some(value) => self.restart_sequence(sequence, value),
            None => {
                let position = self.ddl.sequences.position(&sequence)?;
                if !(sequence.minimum..=sequence.maximum).contains(&position.value) && position.called {
                    let (value, name) = (position.value, &sequence.name);
                    let (which, limit) = match value > sequence.maximum {
                        true => ("greater than MAXVALUE", sequence.maximum),
                        false => ("less than MINVALUE", sequence.minimum),
                    };
                    let message = format!("RESTART value ({value}) cannot be {which} ({limit})");
                    return Err(
                        error(SqlState::INVALID_PARAMETER_VALUE, message).with_detail(format!("Sequence \"{name}\"."))
                    );
                }
                self.put(Object::Sequence(sequence))
            }
        }
    }

    /// Lets a sequence begin again, when the transaction is committed: at its start, or at a value.
    pub(super) fn restart_sequence(&mut self, mut sequence: Sequence, value: Option<i64>) -> Result<(), SqlError> {
        let value = value.unwrap_or(sequence.start);
        check_within(&sequence, value, "RESTART")?;
        self.ddl.effects.touch_state(self.ddl.catalog, sequence.state);
        sequence.state = self.take_state()?;
        if value != sequence.start {
            let position = crate::sequence::Position { value, called: false };
            self.ddl.sequences.set(&sequence, position, self.ddl.interrupted)?;
        }
        self.put(Object::Sequence(sequence))
    }
}

/// The limits of a sequence of this type, if nothing else is said.
fn limits(ty: Type, increment: i64) -> Result<(i64, i64), SqlError> {
    let (least, most) = match ty.kind() {
        Kind::Int2 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        Kind::Int4 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        Kind::Int8 => (i64::MIN, i64::MAX),
        _ => {
            let message = "sequence type must be smallint, integer, or bigint";
            return Err(error(SqlState::INVALID_PARAMETER_VALUE, message));
        }
    };
    Ok(if increment > 0 { (1, most) } else { (least, -1) })
}

fn check_within(sequence: &Sequence, value: i64, what: &str) -> Result<(), SqlError> {
    let (minimum, maximum) = (sequence.minimum, sequence.maximum);
    let message = if value < minimum {
        format!("{what} value ({value}) cannot be less than MINVALUE ({minimum})")
    } else if value > maximum {
        format!("{what} value ({value}) cannot be greater than MAXVALUE ({maximum})")
    } else {
        return Ok(());
    };
    Err(error(SqlState::INVALID_PARAMETER_VALUE, message))
}

/// A sequence with these options. What is not said keeps its value, or gets the usual one if the
/// sequence is new.
fn with_options(mut sequence: Sequence, options: &SequenceOptions, new: bool) -> Result<Sequence, SqlError> {
    let invalid = |message: String| Err(error(SqlState::INVALID_PARAMETER_VALUE, message));
    if let Some(increment) = options.increment {
        if increment == 0 {
            return invalid("INCREMENT must not be zero".to_owned());
        }
        sequence.increment = increment;
    }
    let (least, most) = limits(sequence.ty, sequence.increment)?;
    let (whole_least, whole_most) = (limits(sequence.ty, -1)?.0, limits(sequence.ty, 1)?.1);
    match options.minimum {
        Some(Some(minimum)) => sequence.minimum = minimum,
        Some(None) => sequence.minimum = least,
        None if new => sequence.minimum = least,
        None => {}
    }
    match options.maximum {
        Some(Some(maximum)) => sequence.maximum = maximum,
        Some(None) => sequence.maximum = most,
        None if new => sequence.maximum = most,
        None => {}
    }
    let (minimum, maximum) = (sequence.minimum, sequence.maximum);
    let name = sequence.ty.kind().sql_name();
    if maximum > whole_most || maximum < whole_least {
        return invalid(format!("MAXVALUE ({maximum}) is out of range for sequence data type {name}"));
    }
    if minimum < whole_least || minimum > whole_most {
        return invalid(format!("MINVALUE ({minimum}) is out of range for sequence data type {name}"));
    }
    if minimum >= maximum {
        return invalid(format!("MINVALUE ({minimum}) must be less than MAXVALUE ({maximum})"));
    }
    match options.start {
        Some(start) => sequence.start = start,
        None if new => sequence.start = if sequence.increment > 0 { minimum } else { maximum },
        None => {}
    }
    check_within(&sequence, sequence.start, "START")?;
    if let Some(cache) = options.cache {
        if cache < 1 {
            return invalid(format!("CACHE ({cache}) must be greater than zero"));
        }
        sequence.cache = cache;
    }
    if let Some(cycle) = options.cycle {
        sequence.cycle = cycle;
    }
    Ok(sequence)
}
