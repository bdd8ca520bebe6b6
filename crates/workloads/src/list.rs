//! A short list that lives where it is declared: transactions allocate nothing.

use std::{fmt, marker::PhantomData, ops::Deref};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, SeqAccess, Visitor},
};

/// At most `N` items in place.
#[derive(Clone, Copy)]
pub struct List<T, const N: usize> {
    items: [T; N],
    length: u8,
}

impl<T: Copy + Default, const N: usize> List<T, N> {
    const FITS: () = assert!(N <= u8::MAX as usize, "the length is one byte");

    /// An empty list.
    #[inline]
    pub fn new() -> Self {
        let () = Self::FITS;
        Self { items: [T::default(); N], length: 0 }
    }

    /// Appends an item. False, and nothing is changed, when the list is full.
    #[inline]
    #[must_use = "a full list does not take the item"]
    pub fn push(&mut self, item: T) -> bool {
        let Some(place) = self.items.get_mut(usize::from(self.length)) else { return false };
        *place = item;
        self.length += 1;
        true
    }
}

impl<T: Copy + Default, const N: usize> Default for List<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const N: usize> Deref for List<T, N> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        &self.items[..usize::from(self.length)]
    }
}

impl<T: PartialEq, const N: usize> PartialEq for List<T, N> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq, const N: usize> Eq for List<T, N> {}

impl<T: fmt::Debug, const N: usize> fmt::Debug for List<T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Serialize, const N: usize> Serialize for List<T, N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de, T: Deserialize<'de> + Copy + Default, const N: usize> Deserialize<'de> for List<T, N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T, const N: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de> + Copy + Default, const N: usize> Visitor<'de> for Items<T, N> {
            type Value = List<T, N>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "at most {N} items")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Self::Value, A::Error> {
                let mut list = List::new();
                while let Some(item) = sequence.next_element()? {
                    if !list.push(item) {
                        return Err(A::Error::invalid_length(N + 1, &self));
                    }
                }
                Ok(list)
            }
        }

        deserializer.deserialize_seq(Items(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_list_takes_no_more() {
        let mut list = List::<u32, 2>::new();
        assert!(list.push(1) && list.push(2) && !list.push(3));
        assert_eq!(*list, [1, 2]);
    }

    #[test]
    fn it_travels_as_its_items_and_a_longer_one_is_refused() {
        let bytes = postcard::to_stdvec(&[7u32, 8, 9][..]).unwrap();
        assert_eq!(*postcard::from_bytes::<List<u32, 3>>(&bytes).unwrap(), [7, 8, 9]);
        assert_eq!(postcard::to_stdvec(&postcard::from_bytes::<List<u32, 5>>(&bytes).unwrap()).unwrap(), bytes);
        assert!(postcard::from_bytes::<List<u32, 2>>(&bytes).is_err());
    }
}
