//! Reading and writing the little numbers inside records.
//!
//! Owns bounds: a reader never goes past its slice, and a length that claims more than is
//! there is an error before anything is allocated. Numbers are little-endian here; only
//! keys are big-endian.

use crate::ids::RunId;

/// Sums of these tell sets apart that plain sums would not.
pub(super) use crate::hashing::scramble as mix;

/// What a record says that it cannot mean.
pub(super) type Malformed = &'static str;

/// Reads a record from its beginning.
#[derive(Debug, Clone)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns how many bytes are left.
    pub(super) fn len(&self) -> usize {
        self.rest.len()
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or("it ends too early")?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("N bytes were taken"))
    }

    pub(super) fn u8(&mut self) -> Result<u8, Malformed> {
        Ok(self.array::<1>()?[0])
    }

    pub(super) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    pub(super) fn u64(&mut self) -> Result<u64, Malformed> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    pub(super) fn run(&mut self) -> Result<RunId, Malformed> {
        Ok(RunId::from_bytes(self.array()?))
    }

    /// Reads bytes behind their length.
    pub(super) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.u32()?;
        self.take(len as usize)
    }
}

/// Writes bytes behind their length.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    let len = u32::try_from(bytes.len()).expect("records are far below 4 GiB");
    out.extend_from_slice(&len.to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Writes one of the engine's own structures behind its length.
pub(super) fn put_encoded<T: serde::Serialize>(out: &mut Vec<u8>, value: &T) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    crate::codec::encode_into(value, out);
    let len = u32::try_from(out.len() - at - 4).expect("records are far below 4 GiB");
    out[at..at + 4].copy_from_slice(&len.to_le_bytes());
}

/// A count and a sum of mixed members: tells, for eight bytes each, whether a set that was
/// read back is the set that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Census {
    count: u64,
    sum: u64,
}

impl Census {
    pub(super) fn add(&mut self, member: u64) {
        self.count += 1;
        self.sum = self.sum.wrapping_add(mix(member));
    }

    pub(super) fn remove(&mut self, member: u64) {
        self.count -= 1;
        self.sum = self.sum.wrapping_sub(mix(member));
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.sum.to_le_bytes());
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            count: reader.u64()?,
            sum: reader.u64()?,
        })
    }
}
