//! BLAKE3 of what is short: at most one chunk, which is what nearly every hash of a step is about.
//!
//! Owns nothing but speed. The `blake3` crate computes a block alone with vector instructions, four words at a time, one
//! operation waiting for the other: 82 to 86 ns a block on the processor this was measured on. The same in plain words keeps
//! more of a processor busy: 51 to 55 ns. A step has six such blocks, a fifth of all that it cost
//! (`docs/decisions/0058-short-hashes.md`). What is longer goes to the crate, which computes many chunks at a time and leaves
//! this far behind. Never a hash of its own: the bytes are BLAKE3's, in the specification's names, and every length and mode
//! is tested against the crate.

mod lanes;

use std::hint::black_box;

pub(crate) use self::lanes::LANES;
use self::lanes::compress_lanes;

/// The longest input that is one chunk.
pub(super) const CHUNK_LEN: usize = 1_024;

const BLOCK_LEN: usize = 64;

const IV: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

const CHUNK_START: u32 = 1;
const CHUNK_END: u32 = 1 << 1;
const ROOT: u32 = 1 << 3;
const KEYED_HASH: u32 = 1 << 4;
const DERIVE_KEY_MATERIAL: u32 = 1 << 6;

/// Which of BLAKE3's modes a hash is in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Mode<'a> {
    /// The plain hash.
    Plain,
    /// The keyed hash.
    Keyed(&'a [u8; 32]),
    /// The second half of deriving a key, with the key of a context.
    Derived(&'a [u8; 32]),
}

impl Mode<'_> {
    fn begin(self) -> ([u32; 8], u32) {
        match self {
            Self::Plain => (IV, 0),
            Self::Keyed(key) => (words(key), KEYED_HASH),
            Self::Derived(key) => (words(key), DERIVE_KEY_MATERIAL),
        }
    }
}

/// Hashes at most [`CHUNK_LEN`] bytes.
pub(super) fn hash(mode: Mode<'_>, input: &[u8]) -> [u8; 32] {
    debug_assert!(input.len() <= CHUNK_LEN, "longer inputs are a tree");
    let (value, mode) = mode.begin();
    finish(value, mode, CHUNK_START, input)
}

/// Hashes the blocks of a chunk from one on that is not behind the last.
fn finish(mut value: [u32; 8], mode: u32, mut start: u32, input: &[u8]) -> [u8; 32] {
    let mut rest = input;
    while let Some((block, more)) = rest.split_first_chunk::<BLOCK_LEN>()
        && !more.is_empty()
    {
        value = compress(&value, block, BLOCK_LEN as u32, mode | start);
        (rest, start) = (more, 0);
    }
    let mut last = [0; BLOCK_LEN];
    last[..rest.len()].copy_from_slice(rest);
    let flags = mode | start | CHUNK_END | ROOT;
    let value = compress(&value, &last, rest.len() as u32, flags);
    let mut hash = [0; 32];
    for (bytes, word) in hash.as_chunks_mut::<4>().0.iter_mut().zip(value) {
        *bytes = word.to_le_bytes();
    }
    hash
}

/// The beginning of several hashes, whose whole blocks are computed once.
pub(crate) struct Begun {
    value: [u32; 8],
    mode: u32,
    /// The flag of the next block.
    start: u32,
    /// What is behind the last whole block.
    rest: [u8; BLOCK_LEN],
    len: u8,
}

impl Begun {
    /// Begins with so many bytes that they fit into a chunk with all that follows.
    pub(super) fn with(mode: Mode<'_>, input: &[u8]) -> Self {
        let (mut value, mode) = mode.begin();
        let mut start = CHUNK_START;
        let (blocks, behind) = input.as_chunks::<BLOCK_LEN>();
        for block in blocks {
            // None of them is the last: something follows.
            value = compress(&value, block, BLOCK_LEN as u32, mode | start);
            start = 0;
        }
        let mut rest = [0; BLOCK_LEN];
        rest[..behind.len()].copy_from_slice(behind);
        Self {
            value,
            mode,
            start,
            rest,
            len: behind.len() as u8,
        }
    }

    /// The hash of what it was begun with and of one number.
    pub(crate) fn end_with(&self, number: u64) -> [u8; 32] {
        let len = usize::from(self.len);
        let mut input = [0; BLOCK_LEN + 8];
        input[..BLOCK_LEN].copy_from_slice(&self.rest);
        input[len..len + 8].copy_from_slice(&number.to_le_bytes());
        finish(self.value, self.mode, self.start, &input[..len + 8])
    }

    /// The first halves of the hashes with as many numbers as are computed side by side, from this one on. `None` if the number is
    /// not in the last block alone.
    pub(crate) fn end_with_next(&self, first: u64) -> Option<[[u8; 16]; LANES]> {
        let len = usize::from(self.len);
        let mut blocks = [self.rest; LANES];
        for (block, number) in blocks.iter_mut().zip(0..) {
            let place = block.get_mut(len..len + 8)?;
            place.copy_from_slice(&first.wrapping_add(number).to_le_bytes());
        }
        let flags = self.mode | self.start | CHUNK_END | ROOT;
        Some(compress_lanes(&self.value, &blocks, len as u32 + 8, flags))
    }
}

fn words<const BYTES: usize, const WORDS: usize>(bytes: &[u8; BYTES]) -> [u32; WORDS] {
    let (bytes, _) = bytes.as_chunks::<4>();
    std::array::from_fn(|at| u32::from_le_bytes(bytes[at]))
}

/// Which word of a block goes where in each round.
const SCHEDULE: [[usize; 16]; 7] = {
    const PERMUTATION: [usize; 16] = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];
    let mut schedule = [[0; 16]; 7];
    let mut at = 0;
    while at < 16 {
        schedule[0][at] = at;
        at += 1;
    }
    let mut round = 1;
    while round < 7 {
        let mut at = 0;
        while at < 16 {
            schedule[round][at] = schedule[round - 1][PERMUTATION[at]];
            at += 1;
        }
        round += 1;
    }
    schedule
};

/// Compresses a block behind those that came to `value`. One function for all blocks: its code stays in the processor's cache
/// from one to the next.
#[inline(never)]
fn compress(value: &[u32; 8], block: &[u8; BLOCK_LEN], len: u32, flags: u32) -> [u32; 8] {
    let message: [u32; 16] = words(block);
    let [a, b, c, d, e, f, g, h] = *value;
    let [i, j, k, l, ..] = IV;
    // The counter of a chunk that is the only one is zero.
    let mut state = [a, b, c, d, e, f, g, h, i, j, k, l, 0, 0, len, flags];
    rounds(&mut state, |at| message[at]);
    // Where eight words are computed side by side and stored behind one another, a compiler that may use the newest vector
    // instructions (`target-cpu=native`) makes vectors of all that leads there: 130 ns. The black boxes keep the words apart.
    std::array::from_fn(|at| black_box(state[at] ^ state[at + 8]))
}

#[inline(always)]
fn rounds(state: &mut [u32; 16], message: impl Fn(usize) -> u32) {
    round(state, &message, &SCHEDULE[0]);
    round(state, &message, &SCHEDULE[1]);
    round(state, &message, &SCHEDULE[2]);
    round(state, &message, &SCHEDULE[3]);
    round(state, &message, &SCHEDULE[4]);
    round(state, &message, &SCHEDULE[5]);
    round(state, &message, &SCHEDULE[6]);
}

#[inline(always)]
fn round(state: &mut [u32; 16], message: &impl Fn(usize) -> u32, schedule: &[usize; 16]) {
    let word = |at: usize| message(schedule[at]);
    mix(state, [0, 4, 8, 12], word(0), word(1));
    mix(state, [1, 5, 9, 13], word(2), word(3));
    mix(state, [2, 6, 10, 14], word(4), word(5));
    mix(state, [3, 7, 11, 15], word(6), word(7));
    mix(state, [0, 5, 10, 15], word(8), word(9));
    mix(state, [1, 6, 11, 12], word(10), word(11));
    mix(state, [2, 7, 8, 13], word(12), word(13));
    mix(state, [3, 4, 9, 14], word(14), word(15));
}

/// The function `G` of the specification.
#[inline(always)]
fn mix(state: &mut [u32; 16], [a, b, c, d]: [usize; 4], first: u32, second: u32) {
    state[a] = state[a].wrapping_add(state[b]).wrapping_add(first);
    state[d] = (state[d] ^ state[a]).rotate_right(16);
    state[c] = state[c].wrapping_add(state[d]);
    state[b] = (state[b] ^ state[c]).rotate_right(12);
    state[a] = state[a].wrapping_add(state[b]).wrapping_add(second);
    state[d] = (state[d] ^ state[a]).rotate_right(8);
    state[c] = state[c].wrapping_add(state[d]);
    state[b] = (state[b] ^ state[c]).rotate_right(7);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes without a period that a block or a word could hide.
    fn input(len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 167 + at / 251 + 3) as u8).collect()
    }

    #[test]
    fn every_length_and_mode_is_the_hash_that_the_crate_computes() {
        let key = *blake3::hash(b"a key").as_bytes();
        const CONTEXT: &str = "workflow-runtime 2026-11 a test";
        let context = blake3::hazmat::hash_derive_key_context(CONTEXT);
        for len in 0..=CHUNK_LEN {
            let input = input(len);
            let plain = hash(Mode::Plain, &input);
            assert_eq!(plain, *blake3::hash(&input).as_bytes(), "{len} bytes");
            let keyed = hash(Mode::Keyed(&key), &input);
            let expected = blake3::keyed_hash(&key, &input);
            assert_eq!(keyed, *expected.as_bytes(), "{len} bytes, keyed");
            let derived = hash(Mode::Derived(&context), &input);
            let expected = blake3::derive_key(CONTEXT, &input);
            assert_eq!(derived, expected, "{len} bytes, derived");
        }
    }

    /// Carries and rotations of words that are nearly all ones or zeros.
    #[test]
    fn extreme_words_are_hashed_as_the_crate_does() {
        for byte in [0x00, 0x01, 0x7f, 0x80, 0xff] {
            for len in [1, 4, 63, 64, 65, 128, 1_023, 1_024] {
                let input = vec![byte; len];
                let key = [byte; 32];
                let keyed = hash(Mode::Keyed(&key), &input);
                let expected = blake3::keyed_hash(&key, &input);
                assert_eq!(keyed, *expected.as_bytes(), "{len} times {byte}");
            }
        }
    }

    #[test]
    fn what_is_begun_once_ends_as_if_it_were_hashed_as_a_whole() {
        let key = [5; 32];
        for len in 0..=300 {
            let input = input(len);
            let begun = Begun::with(Mode::Derived(&key), &input);
            for number in [0, 1, 258, u64::MAX] {
                let whole = [&*input, &number.to_le_bytes()].concat();
                let expected = hash(Mode::Derived(&key), &whole);
                assert_eq!(begun.end_with(number), expected, "{len} bytes, {number}");
            }
        }
    }

    #[test]
    fn hashes_that_are_computed_side_by_side_are_those_computed_one_by_one() {
        for mode in [Mode::Plain, Mode::Keyed(&[7; 32]), Mode::Derived(&[5; 32])] {
            for len in 0..=300 {
                let begun = Begun::with(mode, &input(len));
                for first in [0, 7, 0xffff_ffff, u64::MAX - 1] {
                    let Some(halves) = begun.end_with_next(first) else {
                        assert!(len % BLOCK_LEN > BLOCK_LEN - 8, "{len} bytes fit");
                        continue;
                    };
                    for (half, number) in halves.iter().zip(0..) {
                        let alone = begun.end_with(first.wrapping_add(number));
                        assert_eq!(half[..], alone[..16], "{len} bytes, {first} + {number}");
                    }
                }
            }
        }
    }

    /// The first of the official test vectors, so that not only the crate vouches for this.
    #[test]
    fn nothing_hashes_to_what_the_specification_says() {
        let hash = blake3::Hash::from_bytes(hash(Mode::Plain, &[]));
        let expected = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(hash.to_hex().as_str(), expected);
    }
}
