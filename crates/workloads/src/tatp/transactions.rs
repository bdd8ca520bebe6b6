//! The seven transactions.

use std::ops::{Bound, ControlFlow};

use freshet_base::{Isolation, Rid};

use super::{AccessInfo, BY_NUMBER, CallForwarding, Input, Kind, SpecialFacility, Subscriber, Tables};
use crate::{
    command::{self, TATP},
    engine::{Direction, ProcedureError, Ticket, Transaction, Worker, WriteError},
    procedure::reading,
    row::Row,
    table::missing,
};

/// How a transaction went. By its rules some find nothing, and that is no failure of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It found what it was to find, and changed what it was to change.
    Done,
    /// What it looked for is not there, or what it was to add is.
    NotThere,
}

/// Runs a transaction, again if it loses races.
///
/// # Errors
/// When it could not be done. It has left no trace then.
#[inline]
pub fn run(
    worker: &Worker,
    tables: &Tables,
    isolation: Isolation,
    input: &Input,
) -> Result<(Outcome, Ticket), ProcedureError> {
    if input.kind.is_read_only() {
        return reading(worker, isolation, |txn| transact(txn, tables, input));
    }
    worker.execute(isolation, |txn| {
        let outcome = transact(txn, tables, input)?;
        command::record(txn, TATP, input);
        Ok(outcome)
    })
}

/// Does what an input asks for.
#[inline]
pub(crate) fn transact(txn: &Transaction<'_>, tables: &Tables, input: &Input) -> Result<Outcome, ProcedureError> {
    match input.kind {
        Kind::GetSubscriberData => get_subscriber_data(txn, tables, input),
        Kind::GetNewDestination => get_new_destination(txn, tables, input),
        Kind::GetAccessData => get_access_data(txn, tables, input),
        Kind::UpdateSubscriberData => update_subscriber_data(txn, tables, input),
        Kind::UpdateLocation => update_location(txn, tables, input),
        Kind::InsertCallForwarding => insert_call_forwarding(txn, tables, input),
        Kind::DeleteCallForwarding => delete_call_forwarding(txn, tables, input),
    }
}

fn facility_key(subscriber: u32, facility: u8) -> [u8; 5] {
    let [a, b, c, d] = subscriber.to_be_bytes();
    [a, b, c, d, facility]
}

fn forwarding_key(subscriber: u32, facility: u8, start: u8) -> [u8; 6] {
    let [a, b, c, d, e] = facility_key(subscriber, facility);
    [a, b, c, d, e, start]
}

/// The subscriber with the input's number: three transactions are told nothing else.
fn by_number(
    txn: &Transaction<'_>,
    tables: &Tables,
    input: &Input,
) -> Result<(u32, Rid, Row<Subscriber>), ProcedureError> {
    let key = Bound::Included(&input.number.0[..]);
    let mut seen = None;
    tables.subscriber.scan(txn, BY_NUMBER, (key, key), Direction::Forward, |found| {
        seen = Some((found.row.get(Subscriber::ID), found.rid, found.row.to_row()));
        ControlFlow::Break(())
    })?;
    match seen {
        Some(seen) => Ok(seen),
        None => missing("there is no subscriber of this number"),
    }
}

fn get_subscriber_data(txn: &Transaction<'_>, tables: &Tables, input: &Input) -> Result<Outcome, ProcedureError> {
    let absent = "there is no such subscriber";
    let found = tables.subscriber.need(txn, &input.subscriber.to_be_bytes(), absent)?;
    std::hint::black_box(found.row.to_row());
    Ok(Outcome::Done)
}

fn get_new_destination(txn: &Transaction<'_>, tables: &Tables, input: &Input) -> Result<Outcome, ProcedureError> {
    let facility = tables.special_facility.find(txn, &facility_key(input.subscriber, input.facility))?;
    if facility.is_none_or(|facility| facility.row.get(SpecialFacility::ACTIVE) == 0) {
        return Ok(Outcome::NotThere);
    }
    let low = forwarding_key(input.subscriber, input.facility, 0);
    let high = forwarding_key(input.subscriber, input.facility, input.start);
    let mut outcome = Outcome::NotThere;
    let range = (Bound::Included(&low[..]), Bound::Included(&high[..]));
    tables.call_forwarding.scan(txn, 0, range, Direction::Forward, |found| {
        if input.end < found.row.get(CallForwarding::END) {
            std::hint::black_box(found.row.get(CallForwarding::NUMBER));
            outcome = Outcome::Done;
        }
        ControlFlow::Continue(())
    })?;
    Ok(outcome)
}

fn get_access_data(txn: &Transaction<'_>, tables: &Tables, input: &Input) -> Result<Outcome, ProcedureError> {
    let found = tables.access_info.find(txn, &facility_key(input.subscriber, input.facility))?;
    Ok(match found {
        Some(found) => {
            std::hint::black_box((found.row.get(AccessInfo::DATA1), found.row.get(AccessInfo::DATA4)));
            Outcome::Done
        }
        None => Outcome::NotThere,
    })
}

fn update_subscriber_data(txn: &Transaction<'_>, tables: &Tables, input: &Input) -> Result<Outcome, ProcedureError> {
    // First what may be missing: then nothing has to be taken back.
    let key = facility_key(input.subscriber, input.facility);
    let Some(facility) = tables.special_facility.find(txn, &key)? else { return Ok(Outcome::NotThere) };
    let row = facility.row.to_row().with(SpecialFacility::DATA_A, input.value as u8);
    tables.special_facility.update(txn, facility.rid, &row)?;
    let absent = "there is no such subscriber";
    let subscriber = tables.subscriber.need(txn, &input.subscriber.to_be_bytes(), absent)?;
    let bits = subscriber.row.get(Subscriber::BITS) & !1 | (input.value >> 8) as u16 & 1;
    tables.subscriber.update(txn, subscriber.rid, &subscriber.row.to_row().with(Subscriber::BITS, bits))?;
    Ok(Outcome::Done)
}

fn update_location(txn: &Transaction<'_>, tables: &Tables, input: &Input) -> Result<Outcome, ProcedureError> {
    let (_, rid, row) = by_number(txn, tables, input)?;
    tables.subscriber.update(txn, rid, &row.with(Subscriber::VLR_LOCATION, input.value))?;
    Ok(Outcome::Done)
}

fn insert_call_forwarding(txn: &Transaction<'_>, tables: &Tables, input: &Input) -> Result<Outcome, ProcedureError> {
    let (subscriber, _, _) = by_number(txn, tables, input)?;
    if tables.special_facility.find(txn, &facility_key(subscriber, input.facility))?.is_none() {
        return Ok(Outcome::NotThere);
    }
    if tables.call_forwarding.find(txn, &forwarding_key(subscriber, input.facility, input.start))?.is_some() {
        return Ok(Outcome::NotThere);
    }
    let row = Row::new()
        .with(CallForwarding::S_ID, subscriber)
        .with(CallForwarding::TYPE, input.facility)
        .with(CallForwarding::START, input.start)
        .with(CallForwarding::END, input.end)
        .with(CallForwarding::NUMBER, input.destination);
    match tables.call_forwarding.insert(txn, &row) {
        // Another transaction was faster, after our snapshot.
        Err(ProcedureError::Write(WriteError::UniqueViolation { .. })) => Ok(Outcome::NotThere),
        inserted => Ok(inserted.map(|_| Outcome::Done)?),
    }
}

fn delete_call_forwarding(txn: &Transaction<'_>, tables: &Tables, input: &Input) -> Result<Outcome, ProcedureError> {
    let (subscriber, _, _) = by_number(txn, tables, input)?;
    let key = forwarding_key(subscriber, input.facility, input.start);
    match tables.call_forwarding.find(txn, &key)? {
        Some(found) => {
            tables.call_forwarding.delete(txn, found.rid)?;
            Ok(Outcome::Done)
        }
        None => Ok(Outcome::NotThere),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        engine::Database,
        table::TableSet,
        tatp::{Client, Mix, load},
    };

    #[test]
    fn a_forwarding_that_another_transaction_adds_first_is_there() {
        let database = Database::volatile(8);
        let tables = Tables::create(&database).unwrap();
        let _ = load(&database, &tables, 10, 7, 1, &|_| {}).unwrap();
        let [one, another] = [(); 2].map(|()| database.worker().unwrap());
        let mut client = Client::new(10, Mix::Full, 7, 0);
        let mut late = 0;
        for _ in 0..1000 {
            let input = Input { kind: Kind::InsertCallForwarding, ..client.next_input() };
            let slow = one.begin(Isolation::Snapshot);
            // Its snapshot is from before.
            let _ = transact(&slow, &tables, &Input { kind: Kind::GetSubscriberData, ..input }).unwrap();
            let (outcome, _) = run(&another, &tables, Isolation::Snapshot, &input).unwrap();
            assert_eq!(transact(&slow, &tables, &input).unwrap(), Outcome::NotThere);
            late += u32::from(outcome == Outcome::Done);
            let _ = slow.commit().unwrap();
        }
        assert!(late > 0, "none was added in between");
    }
}
