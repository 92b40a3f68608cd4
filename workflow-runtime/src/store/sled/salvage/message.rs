//! The bytes of sled 0.34.7's own log: segments, messages, pages.
//!
//! Owns reading them without sled, for a `db` that sled refuses. Every message has a CRC-32, and a single flipped bit
//! in one is found by it and put right. Pure: it knows no file, and nothing of what our keys mean.

use std::ops::Range;
use std::sync::LazyLock;

use super::super::database::SLED_SEGMENT;

/// Bytes of a segment's header: check (4), sequence number (8), stable sequence number (8).
pub(super) const SEGMENT_HEADER: usize = 20;

/// No message begins in so many last bytes of a segment.
pub(super) const RED_ZONE: usize = 32;

/// The longest header of a message: check (4), kind (1), and three numbers of up to nine bytes.
const MAX_HEADER: usize = 4 + 1 + 9 + 9 + 9;

/// The most bytes of a page number: sled's table of pages has no more.
const MAX_PAGE: u64 = 1 << 37;

/// What a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Padding up to the end of the segment.
    Cap,
    /// The last sequence number of a batch that counts as a whole or not at all.
    Batch,
    /// A page is there no more.
    Free,
    /// A whole page.
    Node,
    /// A change of a page.
    Link,
    /// Something that is no page of the tree, or counts for nothing.
    Other,
    /// A page in a file of its own: the store takes care that there is none.
    Blob,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        Some(match byte {
            1 | 5 | 6 => Self::Other,
            2 => Self::Cap,
            3 => Self::Batch,
            4 => Self::Free,
            8 => Self::Node,
            10 => Self::Link,
            7 | 9 | 11 => Self::Blob,
            _ => return None,
        })
    }
}

/// The beginning of a message, not checked yet.
#[derive(Debug, Clone, Copy)]
struct Head {
    crc: u32,
    kind: Kind,
    body: usize,
    segment: u64,
    page: u64,
    /// Bytes of the header.
    len: usize,
}

/// A message whose check is right.
#[derive(Debug, Clone)]
pub(super) struct Message {
    pub(super) kind: Kind,
    pub(super) page: u64,
    /// Which segment of sled's log it belongs to.
    pub(super) segment: u64,
    /// Where its content is, from the beginning of what was read.
    pub(super) body: Range<usize>,
}

impl Head {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut cursor = Cursor(bytes);
        let crc = u32::from_le_bytes(cursor.array()?);
        let kind = Kind::of(cursor.byte()?)?;
        let body = usize::try_from(cursor.number()?).ok()?;
        let segment = cursor.number()?;
        let page = cursor.number()?;
        let len = bytes.len() - cursor.0.len();
        let is_page = !matches!(kind, Kind::Cap | Kind::Batch | Kind::Other);
        let fits = body <= bytes.len() - len && body <= SLED_SEGMENT;
        (fits && (!is_page || page < MAX_PAGE)).then_some(Self {
            crc,
            kind,
            body,
            segment,
            page,
            len,
        })
    }

    /// What the check must be changed by to be right; 0 if it is.
    fn wrong_by(&self, bytes: &[u8]) -> u32 {
        let mut crc = Crc::default();
        crc.update(&bytes[self.len..self.len + self.body]);
        crc.update(&bytes[4..self.len]);
        // sled stores the check inverted once more.
        crc.finish() ^ u32::MAX ^ self.crc
    }

    fn message(&self) -> Message {
        Message {
            kind: self.kind,
            page: self.page,
            segment: self.segment,
            body: self.len..self.len + self.body,
        }
    }
}

impl Message {
    /// Reads the message that `bytes` begin with, if its check is right. `segment`: the only one it may belong to.
    pub(super) fn read(bytes: &[u8], segment: Option<u64>) -> Option<Self> {
        let head = Head::read(bytes)?;
        let fits = segment.is_none_or(|segment| segment == head.segment);
        (fits && head.wrong_by(bytes) == 0).then(|| head.message())
    }

    /// Puts the message right that `bytes` should begin with, if a single flipped bit is what is wrong with it.
    pub(super) fn mend(bytes: &mut [u8], segment: u64) -> Option<Self> {
        // In the header: few enough to try them all.
        for bit in 0..8 * MAX_HEADER.min(bytes.len()) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Some(message) = Self::read(bytes, Some(segment)) {
                return Some(message);
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        // In the content: the check says which bit.
        let head = Head::read(bytes).filter(|head| head.segment == segment)?;
        let bit = flipped_bit(head.wrong_by(bytes), head.body, head.len - 4)?;
        bytes[head.len + bit / 8] ^= 1 << (bit % 8);
        let message = Self::read(bytes, Some(segment));
        if message.is_none() {
            bytes[head.len + bit / 8] ^= 1 << (bit % 8);
        }
        message
    }

    /// The number behind the last byte of the message.
    pub(super) fn len(&self) -> usize {
        self.body.end
    }
}

/// Reads from a segment's header where in sled's log the segment is, putting a single flipped bit right.
pub(super) fn segment_number(header: &[u8; SEGMENT_HEADER]) -> Option<u64> {
    let mut header = *header;
    if let found @ Some(_) = checked_number(&header) {
        return found;
    }
    (0..8 * SEGMENT_HEADER).find_map(|bit| {
        header[bit / 8] ^= 1 << (bit % 8);
        let found = checked_number(&header);
        header[bit / 8] ^= 1 << (bit % 8);
        found
    })
}

fn checked_number(header: &[u8; SEGMENT_HEADER]) -> Option<u64> {
    let mut crc = Crc::default();
    crc.update(&header[4..]);
    let stored = u32::from_le_bytes(*header.first_chunk()?) ^ u32::MAX;
    let number = i64::from_le_bytes(*header[4..].first_chunk()?) ^ i64::MAX;
    let number = u64::try_from(number).ok()?;
    let segment = SLED_SEGMENT as u64;
    (crc.finish() == stored && number.is_multiple_of(segment)).then_some(number / segment)
}

/// A page of the tree.
#[derive(Debug, Clone, Default)]
pub(super) struct Page {
    /// The keys that may be in it: from here on.
    pub(super) low: Vec<u8>,
    /// And before this one; empty: all others.
    pub(super) high: Vec<u8>,
    /// How many first bytes of `low` its keys leave out.
    pub(super) shared: usize,
    /// Its entries, with full keys. `None`: it is a page that leads to others.
    pub(super) entries: Option<Vec<(Vec<u8>, Vec<u8>)>>,
}

impl Page {
    /// Reads a page.
    pub(super) fn read(body: &[u8]) -> Option<Self> {
        let mut cursor = Cursor(body);
        let (_next, _merging_child) = (cursor.number()?, cursor.number()?);
        let _merging = cursor.byte()?;
        let shared = usize::from(cursor.byte()?);
        let low = cursor.bytes()?.to_vec();
        let high = cursor.bytes()?.to_vec();
        let mut page = Self {
            low,
            high,
            shared,
            entries: None,
        };
        match cursor.byte()? {
            0 => {}
            1 => return Some(page),
            _ => return None,
        }
        let count = usize::try_from(cursor.number()?).ok()?;
        if count > cursor.0.len() {
            return None;
        }
        let mut entries = Vec::with_capacity(count);
        for _ in 0..count {
            entries.push((page.full(cursor.bytes()?)?, Vec::new()));
        }
        for (_, value) in &mut entries {
            *value = cursor.bytes()?.to_vec();
        }
        page.entries = Some(entries);
        cursor.0.is_empty().then_some(page)
    }

    /// Puts a key together of which the page leaves out the beginning.
    pub(super) fn full(&self, key: &[u8]) -> Option<Vec<u8>> {
        let mut full = self.low.get(..self.shared)?.to_vec();
        full.extend_from_slice(key);
        Some(full)
    }
}

/// A change of a page: a key without its beginning, and its value, or none if it was removed.
pub(super) type Change<'a> = (&'a [u8], Option<&'a [u8]>);

/// Reads a change of a page. `Some(None)`: one that changes no key.
pub(super) fn change(body: &[u8]) -> Option<Option<Change<'_>>> {
    let mut cursor = Cursor(body);
    Some(match cursor.byte()? {
        0 => Some((cursor.bytes()?, Some(cursor.bytes()?))),
        1 => Some((cursor.bytes()?, None)),
        2..=4 => None,
        _ => return None,
    })
}

/// Reads the last sequence number of a batch.
pub(super) fn batch_end(body: &[u8]) -> Option<u64> {
    u64::try_from(i64::from_le_bytes(body.try_into().ok()?)).ok()
}

/// Reads sled's numbers and lengths.
struct Cursor<'a>(&'a [u8]);

impl<'a> Cursor<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn byte(&mut self) -> Option<u8> {
        Some(self.array::<1>()?[0])
    }

    fn number(&mut self) -> Option<u64> {
        Some(match self.byte()? {
            small @ 0..=240 => u64::from(small),
            first @ 241..=248 => 240 + 256 * (u64::from(first) - 241) + u64::from(self.byte()?),
            249 => {
                let [high, low] = self.array()?;
                2288 + 256 * u64::from(high) + u64::from(low)
            }
            first => {
                let bytes = self.take(usize::from(first) - 247)?;
                let mut number = [0; 8];
                number[..bytes.len()].copy_from_slice(bytes);
                u64::from_le_bytes(number)
            }
        })
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        self.take(len)
    }
}

/// The polynomial of CRC-32, lowest bit first.
const POLYNOMIAL: u32 = 0xedb8_8320;

static TABLE: LazyLock<[u32; 256]> = LazyLock::new(|| {
    let mut table = [0; 256];
    for (index, entry) in (0_u32..).zip(&mut table) {
        *entry = (0..8).fold(index, |crc, _| shift(crc));
    }
    table
});

/// Moves the remainder on by one zero bit.
fn shift(crc: u32) -> u32 {
    (crc >> 1) ^ (POLYNOMIAL * (crc & 1))
}

/// CRC-32 as sled has it.
struct Crc(u32);

impl Default for Crc {
    fn default() -> Self {
        Self(u32::MAX)
    }
}

impl Crc {
    fn update(&mut self, bytes: &[u8]) {
        let table = &*TABLE;
        for byte in bytes {
            let index = (self.0 ^ u32::from(*byte)) & 0xff;
            self.0 = (self.0 >> 8) ^ table[index as usize];
        }
    }

    fn finish(self) -> u32 {
        self.0 ^ u32::MAX
    }
}

/// Finds the one bit of `len` bytes, followed by `behind` bytes, that makes this difference of their check. The bits of a byte
/// count from its lowest one.
fn flipped_bit(difference: u32, len: usize, behind: usize) -> Option<usize> {
    // A flipped last bit, the highest of the last byte, changes the remainder by the polynomial; every bit before it by
    // what that becomes one bit further on.
    let mut effect = (0..8 * behind).fold(POLYNOMIAL, |effect, _| shift(effect));
    for bit in (0..8 * len).rev() {
        if effect == difference {
            return Some(bit);
        }
        effect = shift(effect);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message as sled writes it.
    fn message(kind: u8, segment: u8, page: u8, body: &[u8]) -> Vec<u8> {
        let mut header = vec![0, 0, 0, 0, kind];
        let len = u16::try_from(body.len()).expect("short");
        match u8::try_from(len) {
            Ok(len) if len <= 240 => header.push(len),
            _ => header.extend([249, ((len - 2288) >> 8) as u8, (len - 2288) as u8]),
        }
        header.extend([segment, page]);
        let mut crc = Crc::default();
        crc.update(body);
        crc.update(&header[4..]);
        let crc = crc.finish() ^ u32::MAX;
        header[..4].copy_from_slice(&crc.to_le_bytes());
        header.extend_from_slice(body);
        header
    }

    #[test]
    fn the_check_is_crc_32() {
        let mut crc = Crc::default();
        crc.update(b"123456789");
        assert_eq!(crc.finish(), 0xcbf4_3926);
    }

    #[test]
    fn every_flipped_bit_of_a_message_is_put_right() {
        for body in [&b"nine byte"[..], &[7; 2_500]] {
            let sound = message(10, 5, 9, body);
            let read = Message::read(&sound, Some(5)).expect("sound");
            assert_eq!(
                (read.kind, read.page, read.len()),
                (Kind::Link, 9, sound.len())
            );
            for bit in 0..8 * sound.len() {
                let mut damaged = sound.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(Message::read(&damaged, Some(5)).is_none(), "bit {bit}");
                let mended = Message::mend(&mut damaged, 5);
                assert!(mended.is_some() && damaged == sound, "bit {bit}");
            }
        }
    }

    #[test]
    fn more_than_one_flipped_bit_is_not_put_right_and_left_as_it_is() {
        let sound = message(10, 5, 9, b"nine byte");
        let mut damaged = sound.clone();
        damaged[9] ^= 0x11;
        damaged[12] ^= 0x0f;
        let before = damaged.clone();
        assert!(Message::mend(&mut damaged, 5).is_none());
        assert_eq!(damaged, before);
    }

    #[test]
    fn hostile_bytes_are_no_message_and_no_page() {
        for len in 0..64 {
            for byte in [0, 1, 8, 241, 249, 255] {
                let bytes = vec![byte; len];
                assert!(Message::read(&bytes, None).is_none());
                let _ = Page::read(&bytes);
                let _ = change(&bytes);
                assert_eq!(batch_end(&bytes).is_some(), len == 8 && byte < 128);
            }
        }
    }
}
