//! The one door to bincode: how the engine's *own* structures become bytes.
//!
//! Owns nothing but the choice of bincode's configuration. User payloads never pass
//! through here (see `payload`): bincode is not self-describing and would turn an added
//! field into an unreadable run.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// What most records take; a larger one grows its buffer.
const ENCODED_LEN: usize = 192;

/// Encodes one of the engine's own structures onto the end of `out`.
pub(crate) fn encode_into<T: Serialize>(value: &T, out: &mut Vec<u8>) {
    bincode::serde::encode_into_std_write(value, out, bincode::config::standard())
        .expect("the engine's own structures have known lengths, and a Vec takes every write");
}

/// Encodes one of the engine's own structures.
pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(ENCODED_LEN);
    encode_into(value, &mut out);
    out
}

/// Writes one of the engine's own structures field by field: the same bytes as [`encode_into`] makes of a
/// structure with these fields.
///
/// For what every step writes: through serde, an id is sixteen values of one byte each. Whoever uses it
/// shows in a test that a derived structure is encoded the same.
pub(crate) struct Fields<'a>(pub(crate) &'a mut Vec<u8>);

impl Fields<'_> {
    /// Writes bytes whose number everybody knows: an array.
    pub(crate) fn array(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// Writes a number of more than one byte, or the number of an enum's variant.
    pub(crate) fn number(&mut self, number: u64) {
        if let Ok(byte) = u8::try_from(number)
            && byte <= 250
        {
            self.0.push(byte);
        } else if let Ok(number) = u16::try_from(number) {
            self.0.push(251);
            self.array(&number.to_le_bytes());
        } else if let Ok(number) = u32::try_from(number) {
            self.0.push(252);
            self.array(&number.to_le_bytes());
        } else {
            self.0.push(253);
            self.array(&number.to_le_bytes());
        }
    }

    /// Writes a text or bytes of any length.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.array(bytes);
    }

    /// Writes whether an option is there; if it is, its value follows.
    pub(crate) fn option(&mut self, is_some: bool) {
        self.0.push(u8::from(is_some));
    }
}

/// Reads what [`Fields`] writes. `None`: it is something else, and [`decode`] says what.
pub(crate) struct FieldsReader<'a>(pub(crate) &'a [u8]);

impl<'a> FieldsReader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// Reads an array.
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*array)
    }

    /// Reads a number of more than one byte, or the number of an enum's variant.
    pub(crate) fn number(&mut self) -> Option<u64> {
        match self.array::<1>()?[0] {
            251 => Some(u64::from(u16::from_le_bytes(self.array()?))),
            252 => Some(u64::from(u32::from_le_bytes(self.array()?))),
            253 => Some(u64::from_le_bytes(self.array()?)),
            254 | 255 => None,
            byte => Some(u64::from(byte)),
        }
    }

    /// Reads bytes of any length.
    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        self.take(len)
    }

    /// Reads a text.
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(self.bytes()?).ok()
    }

    /// Reads whether an option is there.
    pub(crate) fn option(&mut self) -> Option<bool> {
        match self.array::<1>()?[0] {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Gives what was read, if nothing is left over.
    pub(crate) fn whole<T>(&self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

/// Encodes a number that takes nine bytes, as the times of our days do; `None` if it takes fewer.
pub(crate) fn long_number(number: u64) -> Option<[u8; 9]> {
    let mut bytes = [253; 9];
    bytes[1..].copy_from_slice(&number.to_le_bytes());
    (number > u64::from(u32::MAX)).then_some(bytes)
}

/// The most bytes that one structure can have. No store takes as many in one write; without a limit a
/// damaged length would have bincode ask for memory that no machine has, which ends the process.
const MAX_DECODED: usize = 1024 * 1024 * 1024;

/// Up to which length of its bytes a structure counts as small: nearly all are.
const SMALL: usize = 64 * 1024;

/// The most that a small structure can have. A number of one byte is up to eight in memory, so that is enough by far.
const MAX_DECODED_SMALL: usize = 16 * SMALL;

/// Decodes one structure that must fill `bytes` exactly.
///
/// A length prefix that claims more than `bytes` holds is an error. Up to [`MAX_DECODED_SMALL`] bytes, or
/// [`MAX_DECODED`] if there are many, may be asked of the system for it before that is noticed.
///
/// # Errors
///
/// Says what bincode found wrong, or that bytes were left over.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let decoded = match bytes.len() {
        ..=SMALL => bincode::serde::decode_from_slice(
            bytes,
            bincode::config::standard().with_limit::<MAX_DECODED_SMALL>(),
        ),
        _ => bincode::serde::decode_from_slice(
            bytes,
            bincode::config::standard().with_limit::<MAX_DECODED>(),
        ),
    };
    let (value, used) = decoded.map_err(|error| error.to_string())?;
    if used == bytes.len() {
        Ok(value)
    } else {
        Err(format!("{} bytes left over", bytes.len() - used))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_that_no_memory_has_is_an_error() {
        for len in [2, 1 << 20, 1 << 40, u64::MAX] {
            let mut bytes = encode(&len);
            bytes.push(1);
            assert!(decode::<String>(&bytes).is_err(), "{len}");
            assert!(decode::<bytes::Bytes>(&bytes).is_err(), "{len}");
        }
    }

    #[test]
    fn what_is_not_fields_is_not_read_as_such() {
        assert_eq!(FieldsReader(&[251, 1]).number(), None);
        assert_eq!(FieldsReader(&[254; 17]).number(), None);
        assert_eq!(FieldsReader(&[2, 255, 255]).text(), None);
        assert_eq!(FieldsReader(&[3, 1, 1]).bytes(), None);
        assert_eq!(FieldsReader(&[2]).option(), None);
        let endless = encode(&u64::MAX);
        assert_eq!(FieldsReader(&endless).bytes(), None);
    }

    #[test]
    fn fields_written_one_by_one_are_what_a_structure_encodes_to() {
        #[derive(Serialize)]
        struct Structure {
            id: [u8; 16],
            number: u64,
            small: u32,
            text: String,
            there: Option<u64>,
            missing: Option<u64>,
        }
        let edges = [
            0,
            1,
            250,
            251,
            255,
            256,
            65_535,
            65_536,
            u64::from(u32::MAX),
        ];
        for number in edges.into_iter().chain([1 << 32, u64::MAX]) {
            let len = usize::try_from(number.min(70_000)).expect("short");
            let small = u32::try_from(number).unwrap_or(7);
            let structure = Structure {
                id: [9; 16],
                number,
                small,
                text: "x".repeat(len),
                there: Some(number),
                missing: None,
            };
            let mut out = Vec::new();
            let mut fields = Fields(&mut out);
            fields.array(&structure.id);
            fields.number(structure.number);
            fields.number(u64::from(structure.small));
            fields.bytes(structure.text.as_bytes());
            fields.option(true);
            fields.number(number);
            fields.option(false);
            assert_eq!(out, encode(&structure), "{number}");
            let mut reader = FieldsReader(&out);
            assert_eq!(reader.array(), Some(structure.id));
            assert_eq!(reader.number(), Some(number));
            assert_eq!(reader.number(), Some(u64::from(small)));
            assert_eq!(reader.text(), Some(&*structure.text));
            assert_eq!(
                (reader.option(), reader.number()),
                (Some(true), Some(number))
            );
            assert_eq!(reader.whole(()), None);
            assert_eq!((reader.option(), reader.whole(())), (Some(false), Some(())));
            assert_eq!(reader.option(), None);
            let long = long_number(number).map(Vec::from);
            assert_eq!(long, Some(encode(&number)).filter(|bytes| bytes.len() == 9));
        }
    }

    #[test]
    fn what_is_in_memory_may_be_many_times_its_bytes_and_as_large_as_any_record() {
        // Numbers of one byte each are eight in memory.
        for len in [SMALL - 3, 3 << 20] {
            let numbers: Vec<u64> = vec![7; len];
            let bytes = encode(&numbers);
            assert!(bytes.len() >= len && bytes.len() < len + 10);
            assert!(decode::<Vec<u64>>(&bytes).is_ok_and(|read| read == numbers));
        }
    }
}
