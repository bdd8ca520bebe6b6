//! Which build of the program this is.
//!
//! What executes statements again, on another node, must be the same code with the same tables, of
//! time zones among others, which are part of the program.

use std::{
    fs::File,
    io::{self, Read},
    sync::LazyLock,
};

/// The program's file.
const PROGRAM: &str = "/proc/self/exe";
/// The linker's note is near the beginning.
const NEAR: usize = 1 << 20;

static NUMBER: LazyLock<u64> = LazyLock::new(|| File::open(PROGRAM).and_then(number_of).unwrap_or(0));

/// A number that two processes have in common if they run the same build. Reads the program's file
/// when it is called for the first time. Zero where that cannot be read.
pub(super) fn number() -> u64 {
    *NUMBER
}

/// The number of a program: its linker's number for it, or all its bytes, in few bits.
fn number_of(mut program: impl Read) -> io::Result<u64> {
    let mut bytes = Vec::new();
    program.by_ref().take(NEAR as u64).read_to_end(&mut bytes)?;
    if let Some(id) = id(&bytes) {
        return Ok(mixed(id));
    }
    program.read_to_end(&mut bytes)?;
    Ok(mixed(&bytes))
}

/// The linker's note about a program, as ELF has it: lengths of name and content, kind, name,
/// content.
fn id(program: &[u8]) -> Option<&[u8]> {
    (0..program.len()).step_by(4).find_map(|at| {
        let (lengths, rest) = program[at..].split_at_checked(16)?;
        let [4, 0, 0, 0, length @ 8..=64, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0] = *lengths else { return None };
        rest.get(..length.into())
    })
}

/// Bytes in few bits (FNV-1a).
fn mixed(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |mixed: u64, byte| (mixed ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_has_a_number() {
        assert_ne!(number(), 0);
        assert_eq!(number(), File::open(PROGRAM).and_then(number_of).unwrap());
    }

    #[test]
    fn other_programs_have_other_numbers() {
        let note = |id: [u8; 20]| [&[4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0][..], b"GNU\0", &id].concat();
        let program = |note: &[u8], rest: &str| [b"\x7fELF....", note, rest.as_bytes()].concat();
        let number = |program: &[u8]| number_of(program).unwrap();
        let ours = number(&program(&note([7; 20]), "code"));
        assert_eq!(ours, number(&program(&note([7; 20]), "stripped")));
        assert_ne!(ours, number(&program(&note([8; 20]), "code")));
        // Without a note every byte counts, however far away.
        let long = "x".repeat(NEAR);
        assert_ne!(number(&program(&[], &format!("{long}1"))), number(&program(&[], &format!("{long}2"))));
    }
}
