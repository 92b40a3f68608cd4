//! The links of a long journal, checked by more than one thread.
//!
//! Owns who checks which. A link is the hash of what is in its frame and of the link in the frame before, so each can be
//! checked by itself: whoever reads the journal begins at its beginning, helpers at its end, block by block, and
//! where they meet the reader waits for what was begun. Nothing is taken on trust: what a helper does not find
//! in order the reader checks again, and says what is wrong. So the verdict is that of one thread, and so is the record that
//! it names. It never decodes a body.

use std::num::NonZero;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, Scope};

use bytes::Bytes;

use super::chain::Chain;

/// Frames of one block: some tens of microseconds of work, so that nobody waits for long where two meet.
const BLOCK: usize = 128;

/// From so many frames on help is called: fewer are checked sooner than a thread has begun.
const LONG: usize = 2_048;

/// The most helpers. A journal is one of many things that a process does.
const MOST_HELPERS: usize = 3;

/// The links of one journal, from its first record on.
pub(crate) struct Links<'a> {
    /// The chain before the first frame.
    chain: Chain,
    frames: &'a [Bytes],
    state: Mutex<State>,
    /// A helper has finished a block.
    finished: Condvar,
}

struct State {
    /// Blocks that nobody has taken.
    left: std::ops::Range<usize>,
    /// Blocks that helpers are at.
    under_way: usize,
    /// The first frame that a helper did not find in order.
    broken: usize,
}

/// What is known of the links that a reader comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Share {
    /// The reader checks them, up to this frame.
    Own(usize),
    /// They were checked, and all up to this frame are in order.
    Checked(usize),
}

impl<'a> Links<'a> {
    pub(crate) fn new(chain: Chain, frames: &'a [Bytes]) -> Self {
        Self {
            chain,
            frames,
            state: Mutex::new(State {
                left: 0..frames.len().div_ceil(BLOCK),
                under_way: 0,
                broken: frames.len(),
            }),
            finished: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls help, if there is much to do and somebody to do it.
    pub(crate) fn call_help<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>) {
        static HELPERS: OnceLock<usize> = OnceLock::new();
        if self.frames.len() < LONG {
            return;
        }
        let helpers = HELPERS.get_or_init(|| {
            let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
            (cores - 1).min(MOST_HELPERS)
        });
        for _ in 0..*helpers {
            let helper = Builder::new().name("workflow-links".to_owned());
            // If there can be no more threads, the reader does it alone.
            let _ = helper.spawn_scoped(scope, || while self.check_last() {});
        }
    }

    /// Checks the last block that nobody has taken. `false` if there is none.
    fn check_last(&self) -> bool {
        let Some(block) = ({
            let mut state = self.state();
            let block = state.left.next_back();
            state.under_way += usize::from(block.is_some());
            block
        }) else {
            return false;
        };
        let until = self.frames.len().min((block + 1) * BLOCK);
        let broken = (block * BLOCK..until).find(|at| !self.is_in_order(*at));
        let mut state = self.state();
        state.under_way -= 1;
        state.broken = state.broken.min(broken.unwrap_or(usize::MAX));
        drop(state);
        self.finished.notify_one();
        true
    }

    fn is_in_order(&self, at: usize) -> bool {
        let mut chain = self.chain.clone();
        if let Some(before) = at.checked_sub(1) {
            chain.skip_to(before as u64, &self.frames[before]);
        }
        chain.open(&self.frames[at]).is_ok()
    }

    /// Says who checks the links from the next block on. Waits for helpers where none is left to be taken.
    pub(super) fn next_share(&self) -> Share {
        let mut state = self.state();
        if let Some(block) = state.left.next() {
            return Share::Own((block + 1) * BLOCK);
        }
        while state.under_way > 0 {
            let waited = self.finished.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
        Share::Checked(state.broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::ids::RunId;
    use crate::journal::{Draft, Event, JournalError, PatchMarker, Reader, Record};

    const FRAMES: usize = 3 * BLOCK + 7;

    fn run() -> RunId {
        RunId::from_bytes([1; 16])
    }

    fn frames() -> Vec<Bytes> {
        let mut chain = Chain::new(run(), None);
        let marker = |n: usize| {
            let name = format!("patch {n}").into();
            Draft::of(&Event::PatchMarker(PatchMarker { name }))
        };
        let time = Timestamp::from_micros(1_700_000_000_000_000);
        (0..FRAMES)
            .map(|n| marker(n).seal(time, &mut chain))
            .collect()
    }

    /// Reads when helpers have checked so many blocks.
    fn read_with(frames: &[Bytes], blocks: usize) -> Result<Vec<Record>, JournalError> {
        let links = Links::new(Chain::new(run(), None), frames);
        (0..blocks).for_each(|_| {
            links.check_last();
        });
        read_sharing(frames, &links)
    }

    fn read_sharing(frames: &[Bytes], links: &Links<'_>) -> Result<Vec<Record>, JournalError> {
        let mut reader = Reader::new(run(), None, frames);
        reader.share_with(links);
        reader.collect()
    }

    fn read_alone(frames: &[Bytes]) -> Result<Vec<Record>, JournalError> {
        Reader::new(run(), None, frames).collect()
    }

    #[test]
    fn with_help_a_journal_reads_as_it_does_without() {
        let frames = frames();
        for blocks in 0..6 {
            assert_eq!(read_with(&frames, blocks), read_alone(&frames));
        }
        let (short, none) = (&frames[..3], &frames[..0]);
        assert_eq!(read_with(short, 1), read_alone(short));
        assert_eq!(read_with(none, 1), read_alone(none));
    }

    #[test]
    fn damage_is_named_at_its_record_whoever_finds_it() {
        let intact = frames();
        let edges = [
            0,
            1,
            BLOCK - 1,
            BLOCK,
            2 * BLOCK,
            3 * BLOCK - 1,
            3 * BLOCK,
            FRAMES - 1,
        ];
        for at in edges {
            let mut flipped = intact.clone();
            let mut bytes = flipped[at].to_vec();
            *bytes.last_mut().expect("a link") ^= 1;
            flipped[at] = bytes.into();
            let (mut cut, mut newer) = (intact.clone(), intact.clone());
            cut[at] = cut[at].slice(..20);
            newer[at] = [&[9], &newer[at][1..]].concat().into();
            for damaged in [flipped, cut, newer] {
                let alone = read_alone(&damaged).expect_err("damaged");
                for blocks in 0..6 {
                    let helped = read_with(&damaged, blocks);
                    assert_eq!(helped.expect_err("damaged"), alone, "{at}, {blocks} blocks");
                }
            }
        }
        // Two places: the first one counts, whoever has which.
        let mut twice = intact.clone();
        twice.swap(BLOCK / 2, 3 * BLOCK);
        for blocks in 0..6 {
            let alone = read_alone(&twice).expect_err("damaged");
            assert_eq!(read_with(&twice, blocks).expect_err("damaged"), alone);
        }
    }

    #[test]
    fn threads_that_help_find_what_the_reader_would() {
        let mut frames = frames();
        while frames.len() < LONG {
            frames = {
                let mut chain = Chain::new(run(), None);
                let twice = frames.iter().chain(&frames);
                twice.map(|frame| chain.copy(frame)).collect()
            };
        }
        for damaged in [None, Some(LONG - 1), Some(LONG / 2), Some(5)] {
            let mut frames = frames.clone();
            if let Some(at) = damaged {
                frames.swap(at, at - 1);
            }
            let links = Links::new(Chain::new(run(), None), &frames);
            let helped: Result<Vec<Record>, _> = std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| while links.check_last() {});
                }
                read_sharing(&frames, &links)
            });
            assert_eq!(helped, read_alone(&frames), "{damaged:?}");
            assert_eq!(helped.is_err(), damaged.is_some());
        }
    }

    #[test]
    fn a_reader_waits_for_what_helpers_are_still_at() {
        let frames = frames();
        let links = Links::new(Chain::new(run(), None), &frames);
        let mut state = links.state();
        (state.left, state.under_way) = (0..0, 1);
        drop(state);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(30));
                let mut state = links.state();
                (state.under_way, state.broken) = (0, 5);
                drop(state);
                links.finished.notify_one();
            });
            assert_eq!(links.next_share(), Share::Checked(5));
        });
    }
}
