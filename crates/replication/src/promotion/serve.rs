//! The log, for a candidate that continues its own from it.

use freshet_base::{Lsn, Term};
use freshet_cluster::handshake::{Sender, consider};
use freshet_fabric::tcp::Connection;
use freshet_log::ReadError;

use crate::{
    endpoint::refuse,
    feed::check_kept,
    hop::hop,
    wire::{self, Ack, BatchNote, Continue, Hello, Kind, Refusal, Reply, Welcome},
};

/// Sends the log to a candidate, as far as it is persistent here, and ends the connection. One
/// piece at a time: the next follows when the candidate has acknowledged the last.
pub(crate) fn serve_log(
    mut connection: Connection,
    from: &Sender,
    partition: u64,
    hello: &Hello,
    log: &Continue,
    read: impl Fn(Lsn, &mut [u8]) -> Result<(), ReadError>,
) {
    let agreed = match consider(from, hello.cluster, hello.node, Term(0), log) {
        Ok(agreed) => agreed,
        Err(refusal) => return refuse(connection, refusal),
    };
    // The candidate cuts its own log when it is welcome.
    if let Err(refusal) = check_kept(&read, &agreed.welcome) {
        return refuse(connection, refusal);
    }
    let cut_at = agreed.welcome.cut_at;
    let welcome = Welcome { log: agreed.welcome, offer: None, bare: false };
    let welcome = wire::encode_first(&connection, &Reply::Welcome(welcome));
    if connection.sender().send(Kind::Reply as u8, from.term, &welcome).is_err() {
        return;
    }
    let (mut sender, mut receiver) = connection.split();
    let mut at = cut_at;
    let mut room = agreed.may_send_until;
    let mut piece = vec![0; PIECE];
    while at < from.end {
        if room > at {
            match next_piece(&mut piece, at, from.end.min(room), partition, &read) {
                Err(why) => {
                    // If it cannot be told, it will notice.
                    let _ = sender.send(Kind::Goodbye as u8, from.term, &wire::encode(&Refusal::Failed(why)));
                    return;
                }
                Ok(None) => {}
                Ok(Some(ends)) => {
                    let length = *ends.last().expect("a piece has an end") as usize;
                    let note = BatchNote { end: from.end, in_sync: true, ends, ..BatchNote::default() };
                    let payload = [&piece[..length], &[]];
                    let immediate = wire::encode(&note);
                    if sender.write_with_imm(Kind::Batch as u8, from.term, at.0, payload, &immediate).is_err() {
                        return;
                    }
                    at = at.plus(length as u64);
                }
            }
        }
        // Whatever it says of its room; silence ends the connection.
        let Ok(header) = receiver.receive() else { return };
        match (Kind::from_code(header.kind), header.payload) {
            (Some(Kind::Ack), 0) => match wire::decode::<Ack>("acknowledgement", receiver.immediate()) {
                Ok(ack) => room = room.max(ack.may_send_until),
                Err(_) => return,
            },
            _ => return,
        }
    }
    // The candidate hangs up when it has everything.
    while receiver.receive().is_ok_and(|header| header.payload == 0) {}
}

const PIECE: usize = 1 << 20;

/// Whole blocks from `at` on, into `piece`; `None` when the room is too small for one.
fn next_piece(
    piece: &mut Vec<u8>,
    at: Lsn,
    upto: Lsn,
    partition: u64,
    read: &impl Fn(Lsn, &mut [u8]) -> Result<(), ReadError>,
) -> Result<Option<Vec<u32>>, String> {
    let room = upto.since(at) as usize;
    let mut length = room.min(PIECE);
    loop {
        piece.resize(length.max(PIECE), 0);
        read(at, &mut piece[..length]).map_err(|error| error.to_string())?;
        let hops = hop(&piece[..length], at, partition).map_err(|error| error.to_string())?;
        match hops.next {
            Some(block) if hops.whole == 0 && block <= room => length = block,
            _ => return Ok((hops.whole > 0).then_some(hops.ends)),
        }
    }
}
