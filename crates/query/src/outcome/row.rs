//! The rows of `sql.outcomes`, and what a token is made of.
//!
//! A token is a UUID of version 8: the number of its generation (32 bits), the generation's random
//! number (28), and 62 bits of its own. So the index holds tokens in the order of generations, and
//! a token cannot be guessed.

/// How many bytes of a row are its key.
pub(super) const KEY: u16 = 17;

/// What a row is.
const GENERATION: u8 = 0;
const TOKEN: u8 = 1;
/// How many bits of a generation's random number are in a token.
pub(super) const NONCE: u32 = (1 << 28) - 1;

pub(super) type Key = [u8; KEY as usize];

/// The name of a transaction, for who wants to know what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token(pub [u8; 16]);

/// A generation of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Generation {
    /// One more than the one before.
    pub(super) number: u32,
    nonce: u32,
    /// The run of the primary that has begun it.
    pub(super) run: u64,
    /// When that was by its clock, in microseconds since 1970.
    pub(super) begun: u64,
}

impl Generation {
    /// Between which keys all of them are.
    pub(super) const RANGE: [Key; 2] = {
        let mut to = [u8::MAX; KEY as usize];
        to[0] = GENERATION;
        [[0; KEY as usize], to]
    };

    pub(super) fn new(number: u32, nonce: u32, run: u64, begun: u64) -> Self {
        Self { number, nonce: nonce & NONCE, run, begun }
    }

    pub(super) fn row(self) -> Vec<u8> {
        let mut row = vec![GENERATION];
        row.extend(self.number.to_be_bytes());
        row.extend(self.nonce.to_be_bytes());
        row.extend(self.run.to_be_bytes());
        row.extend(self.begun.to_be_bytes());
        row
    }

    /// Reads a row: `None` when it is not the row of a generation.
    pub(super) fn of(row: &[u8]) -> Option<Self> {
        let (kind, rest) = row.split_first()?;
        let (number, rest) = rest.split_first_chunk()?;
        let (nonce, rest) = rest.split_first_chunk()?;
        let (run, rest) = rest.split_first_chunk()?;
        let begun = rest.try_into().ok()?;
        (*kind == GENERATION).then(|| Self {
            number: u32::from_be_bytes(*number),
            nonce: u32::from_be_bytes(*nonce),
            run: u64::from_be_bytes(*run),
            begun: u64::from_be_bytes(begun),
        })
    }

    /// Between which keys the generation of this number is.
    pub(super) fn range(self) -> [Key; 2] {
        range(GENERATION, self.number)
    }
}

/// Between which keys the rows of a kind and of a generation are.
fn range(kind: u8, number: u32) -> [Key; 2] {
    [0, u8::MAX].map(|rest| {
        let mut key = [rest; KEY as usize];
        key[0] = kind;
        key[1..5].copy_from_slice(&number.to_be_bytes());
        key
    })
}

impl std::fmt::Display for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, byte) in self.0.iter().enumerate() {
            let before = if matches!(place, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{before}{byte:02x}")?;
        }
        Ok(())
    }
}

impl Token {
    /// One of a generation, with these random bits.
    pub(super) fn new(generation: Generation, random: u64) -> Self {
        let mut token = [0; 16];
        token[..4].copy_from_slice(&generation.number.to_be_bytes());
        // Around the version, in the upper half of the seventh byte.
        let (high, low) = (generation.nonce >> 12 << 16, generation.nonce & 0xfff);
        token[4..8].copy_from_slice(&(high | 0x8000 | low).to_be_bytes());
        token[8..].copy_from_slice(&(random & (u64::MAX >> 2) | 1 << 63).to_be_bytes());
        Self(token)
    }

    /// The number of its generation.
    pub(super) fn number(self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_be_bytes([a, b, c, d])
    }

    /// Whether it is of this generation.
    pub(super) fn is_of(self, generation: Generation) -> bool {
        self.0[..8] == Self::new(generation, 0).0[..8]
    }

    /// Between which keys its generation is.
    pub(super) fn generation(self) -> [Key; 2] {
        range(GENERATION, self.number())
    }

    /// Between which keys the tokens of all generations before this one are.
    pub(super) fn before(first: Generation) -> [Key; 2] {
        [range(TOKEN, 0)[0], range(TOKEN, first.number.saturating_sub(1))[1]]
    }

    /// Its row, which is its key.
    pub(super) fn row(self) -> Key {
        let mut row = [TOKEN; KEY as usize];
        row[1..].copy_from_slice(&self.0);
        row
    }
}
