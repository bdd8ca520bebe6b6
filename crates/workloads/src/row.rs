//! Rows with fixed-width columns at fixed offsets, read in place.
//!
//! A table's layout is declared once with [`layout!`](crate::row), as an uninhabited type whose
//! associated constants are its columns. From these come the accessors, the
//! row's width and the keys of its indexes, so that no offset is written twice.
//! Numbers are little-endian, but those of keys are big-endian ([`Sorted`]) and
//! the columns of a primary key adjacent: such a key is one run of the row's own
//! bytes. Text is padded with spaces, as SQL's CHAR is.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, SeqAccess, Visitor},
};

/// How a column holds a value.
pub trait Value {
    /// The value.
    type Of;

    /// Bytes in the row.
    const WIDTH: usize;

    /// Reads it from exactly [`Value::WIDTH`] bytes.
    fn read(bytes: &[u8]) -> Self::Of;

    /// Writes it to exactly [`Value::WIDTH`] bytes.
    fn write(value: Self::Of, bytes: &mut [u8]);
}

/// Values whose bytes compare as they do: fit for keys as they are.
pub trait Sorts: Value {}

/// A number that is stored big-endian.
#[derive(Clone, Copy, Debug)]
pub struct Sorted<T>(PhantomData<T>);

macro_rules! numbers {
    ($how:ident, $read:ident, $write:ident: $($tag:ty => $number:ty),+) => {$(
        impl Value for $tag {
            type Of = $number;

            const WIDTH: usize = size_of::<$number>();

            #[inline]
            fn read(bytes: &[u8]) -> $number {
                <$number>::$read(bytes.try_into().expect("a column has its width"))
            }

            #[inline]
            fn write(value: $number, bytes: &mut [u8]) {
                bytes.copy_from_slice(&value.$write());
            }
        }

        numbers!(@$how $tag);
    )+};
    (@sorts $tag:ty) => { impl Sorts for $tag {} };
    (@plain $tag:ty) => {};
}

numbers!(plain, from_le_bytes, to_le_bytes: u16 => u16, u32 => u32, u64 => u64, i16 => i16, i32 => i32, i64 => i64);
numbers!(sorts, from_be_bytes, to_be_bytes: u8 => u8, Sorted<u16> => u16, Sorted<u32> => u32, Sorted<u64> => u64);

/// Text of at most `N` bytes, padded with spaces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text<const N: usize>(pub [u8; N]);

impl<const N: usize> Text<N> {
    /// Nothing but padding.
    pub const EMPTY: Self = Self([b' '; N]);

    /// The text; what does not fit is cut off.
    #[inline]
    pub fn new(text: &[u8]) -> Self {
        let mut result = Self::EMPTY;
        let length = text.len().min(N);
        result.0[..length].copy_from_slice(&text[..length]);
        result
    }

    /// The text without its padding.
    pub fn trimmed(&self) -> &[u8] {
        self.0.trim_ascii_end()
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self::EMPTY
    }
}

impl<const N: usize> Sorts for Text<N> {}

impl<const N: usize> Value for Text<N> {
    type Of = Self;

    const WIDTH: usize = N;

    #[inline]
    fn read(bytes: &[u8]) -> Self {
        Self(bytes.try_into().expect("a column has its width"))
    }

    #[inline]
    fn write(value: Self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&value.0);
    }
}

impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.trimmed().escape_ascii().fmt(f)
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl<const N: usize> Serialize for Text<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.trimmed())
    }
}

impl<'de, const N: usize> Deserialize<'de> for Text<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Padded<const N: usize>;

        impl<'de, const N: usize> Visitor<'de> for Padded<N> {
            type Value = Text<N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {N} bytes of text")
            }

            fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Self::Value, E> {
                if bytes.len() > N {
                    return Err(E::invalid_length(bytes.len(), &self));
                }
                Ok(Text::new(bytes))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
                let mut text = Text::EMPTY;
                let mut length = 0;
                while let Some(byte) = sequence.next_element()? {
                    *text.0.get_mut(length).ok_or_else(|| A::Error::invalid_length(N + 1, &self))? = byte;
                    length += 1;
                }
                Ok(text)
            }
        }

        deserializer.deserialize_bytes(Padded)
    }
}

/// The columns of a table's rows. Implemented by [`layout!`](crate::row) only.
pub trait Layout {
    /// `[u8; WIDTH]`.
    type Bytes: Copy + AsRef<[u8]> + AsMut<[u8]> + 'static;

    /// The table's name.
    const NAME: &'static str;
    /// The width of a row in bytes.
    const WIDTH: usize;
    /// All columns in order.
    const COLUMNS: &'static [Described];
    /// A row of zeros.
    const ZEROS: Self::Bytes;

    /// `bytes` as a row, or nothing when they are not as wide.
    fn cast(bytes: &[u8]) -> Option<&Self::Bytes>;
}

/// A column as catalogs and people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Described {
    /// The name, in capitals.
    pub name: &'static str,
    /// Where it begins in the row.
    pub offset: usize,
    /// Its width in bytes.
    pub width: usize,
}

/// The column of table `L` that holds a `V`.
pub struct Column<L, V> {
    offset: usize,
    of: PhantomData<(L, V)>,
}

impl<L, V> Clone for Column<L, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<L, V> Copy for Column<L, V> {}

impl<L: Layout, V: Value> Column<L, V> {
    /// The column that begins at `offset`.
    #[doc(hidden)]
    pub const fn at(offset: usize) -> Self {
        Self { offset, of: PhantomData }
    }

    /// Where it begins in the row.
    pub const fn offset(self) -> usize {
        self.offset
    }

    /// Where the next column begins.
    pub const fn end(self) -> usize {
        self.offset + V::WIDTH
    }
}

/// A table's row in a buffer of its own.
pub struct Row<L: Layout>(L::Bytes);

impl<L: Layout> Clone for Row<L> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: Layout> Copy for Row<L> {}

impl<L: Layout> Default for Row<L> {
    fn default() -> Self {
        Self::new()
    }
}

impl<L: Layout> Row<L> {
    /// A row of zeros.
    #[inline]
    pub fn new() -> Self {
        Self(L::ZEROS)
    }

    /// Sets a column.
    #[inline]
    pub fn set<V: Value>(&mut self, column: Column<L, V>, value: V::Of) -> &mut Self {
        V::write(value, &mut self.0.as_mut()[column.offset..column.offset + V::WIDTH]);
        self
    }

    /// Sets a column of a row that is being built.
    #[inline]
    #[must_use]
    pub fn with<V: Value>(mut self, column: Column<L, V>, value: V::Of) -> Self {
        self.set(column, value);
        self
    }

    /// Reads a column.
    #[inline]
    pub fn get<V: Value>(&self, column: Column<L, V>) -> V::Of {
        self.view().get(column)
    }

    /// The row, to be read.
    #[inline]
    pub fn view(&self) -> View<'_, L> {
        View(&self.0)
    }

    /// The row's bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    /// A column's bytes in place.
    #[inline]
    pub fn column_mut<V: Value>(&mut self, column: Column<L, V>) -> &mut [u8] {
        &mut self.0.as_mut()[column.offset..column.offset + V::WIDTH]
    }
}

impl<L: Layout> fmt::Debug for Row<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.view().fmt(f)
    }
}

/// A table's row where it is stored.
pub struct View<'a, L: Layout>(&'a L::Bytes);

impl<L: Layout> Clone for View<'_, L> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<L: Layout> Copy for View<'_, L> {}

impl<'a, L: Layout> View<'a, L> {
    /// The row in `bytes`.
    ///
    /// # Errors
    /// [`WrongWidth`] when `bytes` cannot be a row of this table.
    #[inline]
    pub fn of(bytes: &'a [u8]) -> Result<Self, WrongWidth> {
        L::cast(bytes).map(Self).ok_or(WrongWidth { table: L::NAME, expected: L::WIDTH, found: bytes.len() })
    }

    /// Reads a column.
    #[inline]
    pub fn get<V: Value>(self, column: Column<L, V>) -> V::Of {
        V::read(self.bytes(column))
    }

    /// A column's bytes in place.
    #[inline]
    pub fn bytes<V: Value>(self, column: Column<L, V>) -> &'a [u8] {
        &self.0.as_ref()[column.offset..column.offset + V::WIDTH]
    }

    /// A copy of the row, to be changed.
    #[inline]
    pub fn to_row(self) -> Row<L> {
        Row(*self.0)
    }
}

impl<L: Layout> fmt::Debug for View<'_, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines = f.debug_struct(L::NAME);
        for column in L::COLUMNS {
            let bytes = &self.0.as_ref()[column.offset..column.offset + column.width];
            lines.field(column.name, &format_args!("{}", bytes.escape_ascii()));
        }
        lines.finish()
    }
}

/// Bytes that were read from a table are not one of its rows: the table was
/// made by another version or by another program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongWidth {
    /// The table.
    pub table: &'static str,
    /// The width of its rows.
    pub expected: usize,
    /// How many bytes there were.
    pub found: usize,
}

impl fmt::Display for WrongWidth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "a row of table {} has {} bytes where this version expects {}: load the workload again with this version",
            self.table, self.found, self.expected
        )
    }
}

impl std::error::Error for WrongWidth {}

/// Declares a table's layout: `layout! { /// doc Name = "table" { /// doc COLUMN: type, ... } }`.
macro_rules! layout {
    ($(#[$doc:meta])* $layout:ident = $name:literal { $($(#[$column_doc:meta])* $column:ident: $value:ty,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $layout {}

        $crate::row::layout!(@columns $layout, 0, $($(#[$column_doc])* $column: $value,)+);

        impl $crate::row::Layout for $layout {
            type Bytes = [u8; Self::WIDTH];

            const NAME: &'static str = $name;
            const WIDTH: usize = 0 $(+ <$value as $crate::row::Value>::WIDTH)+;
            const COLUMNS: &'static [$crate::row::Described] = &[$($crate::row::Described {
                name: stringify!($column),
                offset: Self::$column.offset(),
                width: <$value as $crate::row::Value>::WIDTH,
            }),+];
            const ZEROS: Self::Bytes = [0; Self::WIDTH];

            #[inline]
            fn cast(bytes: &[u8]) -> Option<&Self::Bytes> {
                bytes.try_into().ok()
            }
        }
    };
    (@columns $layout:ident, $offset:expr, $(#[$doc:meta])* $column:ident: $value:ty, $($rest:tt)*) => {
        impl $layout {
            $(#[$doc])*
            pub const $column: $crate::row::Column<Self, $value> = $crate::row::Column::at($offset);
        }
        $crate::row::layout!(@columns $layout, <$layout>::$column.end(), $($rest)*);
    };
    (@columns $layout:ident, $offset:expr,) => {};
}
pub(crate) use layout;

#[cfg(test)]
mod tests {
    use super::*;

    layout! {
        /// For these tests.
        Sample = "sample" {
            /// First.
            ID: u32,
            /// Second.
            NAME: Text<5>,
            /// Third.
            AMOUNT: i64,
        }
    }

    #[test]
    fn columns_follow_one_another() {
        assert_eq!(Sample::WIDTH, 17);
        let offsets: Vec<_> = Sample::COLUMNS.iter().map(|column| (column.name, column.offset, column.width)).collect();
        assert_eq!(offsets, [("ID", 0, 4), ("NAME", 4, 5), ("AMOUNT", 9, 8)]);
    }

    #[test]
    fn what_is_set_is_read() {
        let row =
            Row::<Sample>::new().with(Sample::ID, 7).with(Sample::NAME, Text::new(b"abc")).with(Sample::AMOUNT, -3);
        let view = View::<Sample>::of(row.bytes()).unwrap();
        assert_eq!((view.get(Sample::ID), view.get(Sample::AMOUNT)), (7, -3));
        assert_eq!(view.get(Sample::NAME).trimmed(), b"abc");
        assert_eq!(row.bytes(), b"\x07\0\0\0abc  \xfd\xff\xff\xff\xff\xff\xff\xff");
        let changed = view.to_row().with(Sample::AMOUNT, 9);
        assert_eq!((changed.get(Sample::ID), changed.get(Sample::AMOUNT)), (7, 9));
    }

    #[test]
    fn bytes_of_another_width_are_refused() {
        let error = View::<Sample>::of(&[0; 16]).unwrap_err();
        assert_eq!(error, WrongWidth { table: "sample", expected: 17, found: 16 });
    }

    #[test]
    fn text_travels_without_padding() {
        let bytes = postcard::to_stdvec(&Text::<8>::new(b"abc")).unwrap();
        assert_eq!(bytes, b"\x03abc");
        assert_eq!(postcard::from_bytes::<Text<8>>(&bytes).unwrap(), Text::new(b"abc"));
        assert!(postcard::from_bytes::<Text<2>>(&bytes).is_err());
    }
}
