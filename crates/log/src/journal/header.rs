//! What a file of the journal begins with.

use freshet_base::versions::Versions;

use super::{FILE_HEADER, damage, half, name_of, word};
use crate::{medium::Medium, segments::StoreError};

/// What a file begins with; two digits follow, the version.
const MAGIC: &[u8; 6] = b"FRJOUR";
const READS: Versions = Versions::new(2, 2);

pub(super) fn file_header(number: u64, size: u64, before: u64, first: u64, life: u32) -> [u8; FILE_HEADER] {
    let mut header = [0; FILE_HEADER];
    header[..6].copy_from_slice(MAGIC);
    header[6..8].copy_from_slice(format!("{:02}", READS.writes()).as_bytes());
    for (place, word) in [(8, number), (16, size), (24, before), (32, first)] {
        header[place..place + 8].copy_from_slice(&word.to_le_bytes());
    }
    header[40..44].copy_from_slice(&life.to_le_bytes());
    let crc = crc32c::crc32c(&header[..44]);
    header[44..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// The whole file, if its header holds, or what a file of another version has.
pub(super) fn header(medium: &dyn Medium, number: u64, life: u32) -> Result<Vec<u8>, StoreError> {
    let name = name_of(number);
    let failed = |source| StoreError::io("read", medium.path(&name), 0, 0, source);
    let file = medium.open(&name).map_err(failed)?;
    let mut bytes = vec![0; file.size().map_err(failed)? as usize];
    file.read(0, &mut bytes).map_err(failed)?;
    let holds =
        |header: &&[u8; FILE_HEADER]| word(header, 8) == number && crc32c::crc32c(&header[..44]) == half(header, 44);
    let digits = bytes.get(6..8).filter(|_| bytes.starts_with(MAGIC)).and_then(|digits| str::from_utf8(digits).ok());
    let version = digits.and_then(|digits| digits.parse().ok());
    let other = match version.map(|version| READS.check(version)) {
        None => Some(format!("it does not begin with {} and a version", MAGIC.escape_ascii())),
        Some(checked) => checked.err().map(|cause| format!("it has {cause}")),
    };
    if let Some(what) = other {
        return Err(damage(medium, number, 0, what));
    }
    let Some(header) = bytes.first_chunk::<FILE_HEADER>().filter(holds) else {
        return Err(damage(medium, number, 0, "its header is not what was written there".to_owned()));
    };
    if word(header, 16) != bytes.len() as u64 {
        let what = format!("the file was made with {} bytes and has {}", word(header, 16), bytes.len());
        return Err(damage(medium, number, bytes.len() as u64, what));
    }
    if half(header, 40) != life && half(header, 40) != 0 && life != 0 {
        let what = "it is of another log than this node's: of one that was here before, or came later".to_owned();
        return Err(damage(medium, number, 0, what));
    }
    Ok(bytes)
}
