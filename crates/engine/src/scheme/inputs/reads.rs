//! Read sets, for locks: which records a transaction has read and does not write.
//!
//! They stand before a procedure's number and its inputs, behind a number that no procedure
//! has. Tables and records ascend, and what is written is by how much.

use freshet_base::{Fid, Rid, varint};

/// In the place of a procedure's number, where a read set comes first.
const READ_SET: u64 = 0;

/// Appends a read set, whose records ascend, each once.
pub(crate) fn encode(reads: &[(Fid, Rid)], into: &mut Vec<u8>) {
    varint::put(into, READ_SET);
    let mut rids = Vec::with_capacity(2 * reads.len());
    let mut last = 0;
    for table in reads.chunk_by(|one, next| one.0 == next.0) {
        let fid = table[0].0.0;
        varint::put(&mut rids, u64::from(fid - last));
        varint::put(&mut rids, table.len() as u64);
        last = fid;
        let mut before = 0;
        for (_, rid) in table {
            varint::put(&mut rids, rid.0.wrapping_sub(before));
            before = rid.0;
        }
    }
    varint::put(into, rids.len() as u64);
    into.extend_from_slice(&rids);
}

/// The bytes of a read set, if one comes first, and what follows. None when that is cut short; any
/// bytes are safe.
pub(crate) fn split(body: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut rest = body;
    if varint::take(&mut rest)? != READ_SET {
        return Some((&[], body));
    }
    let length = usize::try_from(varint::take(&mut rest)?).ok()?;
    rest.split_at_checked(length)
}

/// What [`encode`] was given, of the bytes that [`split`] has found. Of other bytes, some records
/// or none; any are safe.
pub(crate) fn decode(mut reads: &[u8]) -> Vec<(Fid, Rid)> {
    let (mut records, mut last) = (Vec::new(), 0u32);
    while let Some(further) = varint::take(&mut reads).and_then(|further| u32::try_from(further).ok()) {
        last = last.wrapping_add(further);
        let Some(count) = varint::take(&mut reads) else { break };
        let mut before = 0u64;
        for _ in 0..count {
            let Some(further) = varint::take(&mut reads) else { break };
            before = before.wrapping_add(further);
            records.push((Fid(last), Rid(before)));
        }
    }
    records
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_set_comes_back_and_what_follows_it() {
        let of = |reads: &[(u32, u64)]| reads.iter().map(|(fid, rid)| (Fid(*fid), Rid(*rid))).collect::<Vec<_>>();
        for reads in [&[][..], &[(3, 0)], &[(3, 7), (3, 8), (3, u64::MAX)], &[(1, 1 << 40), (u32::MAX, 0)]] {
            let reads = of(reads);
            let mut body = Vec::new();
            encode(&reads, &mut body);
            let length = body.len();
            body.extend_from_slice(b"\x05told");
            let (found, rest) = split(&body).unwrap();
            assert_eq!((decode(found), rest), (reads, &b"\x05told"[..]));
            // Whatever is cut off, nothing is made up.
            for end in 0..length {
                assert_eq!(split(&body[..end]), None, "{body:?} up to {end}");
            }
        }
        // Without one.
        assert_eq!(split(b"\x05told"), Some((&b""[..], &b"\x05told"[..])));
        // More than there can be.
        assert_eq!(decode(&[1, 200, 200, 200, 1, 9]), [(Fid(1), Rid(9))]);
    }
}
