//! What happens to a case beside its program: a part that fails until somebody mends the world, retries, forks, a schedule.
//!
//! Owns the choices. They come from a stream of their own, so that the program and the fates of a seed stay what they were
//! before there were any.

use std::time::{Duration, SystemTime};

use workflow_runtime::{CatchUp, Overlap};

use super::life::FIRST_MORNING;
use super::program::Program;
use crate::chance::{Chance, mix};

/// Tells this stream from that of the program.
const SALT: u64 = 0x7265_7472_7966_6f72;

/// More than any schedule here has.
const ALL: CatchUp = CatchUp::All { at_most: 1_000 };

/// What else happens.
#[derive(Debug, Clone)]
pub(super) struct Extras {
    /// How often somebody tries the failed run again.
    pub(super) retries: u64,
    /// The part that fails until the world is mended, if there is one.
    pub(super) shaky: Option<Shaky>,
    /// How many forks somebody makes.
    pub(super) forks: u64,
    pub(super) beat: Option<Beat>,
}

/// A part that fails until the world is mended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shaky {
    /// How often the world has to be mended.
    pub(super) mends: u64,
    /// Nothing else is dropped when it fails, so that the run surely completes when it is tried again.
    pub(super) alone: bool,
}

/// A schedule.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beat {
    pub(super) every: Duration,
    pub(super) ticks: u32,
    pub(super) overlap: Overlap,
    pub(super) catch_up: CatchUp,
    /// How long the run of a tick sleeps, in milliseconds.
    pub(super) naps: u64,
    pub(super) queued: bool,
}

impl Beat {
    fn draw(chance: &mut Chance) -> Self {
        let every = Duration::from_secs(chance.one_of(&[1, 60, 3_600, 86_400]));
        let ms = u64::try_from(every.as_millis()).expect("a day");
        Self {
            every,
            ticks: 2 + u32::try_from(chance.below(4)).expect("a few"),
            overlap: chance.one_of(&[
                Overlap::Skip,
                Overlap::Allow,
                Overlap::BufferOne,
                Overlap::CancelPrevious,
            ]),
            catch_up: chance.one_of(&[CatchUp::None, CatchUp::Last, ALL, ALL]),
            naps: chance.one_of(&[0, ms / 2, ms * 3 / 2, ms * 4]),
            queued: chance.once_in(4),
        }
    }

    /// The first tick.
    pub(super) fn start(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(FIRST_MORNING + 5)
    }

    /// The tick of a number.
    pub(super) fn tick(&self, n: u32) -> SystemTime {
        self.start() + self.every * n
    }

    /// The last tick.
    pub(super) fn end(&self) -> SystemTime {
        self.tick(self.ticks - 1)
    }

    /// Every tick is run or counted as skipped, however long nobody came to it.
    pub(super) fn settles_all(&self) -> bool {
        self.catch_up == ALL
    }
}

impl Extras {
    /// Nothing else.
    pub(super) const NONE: Self = Self {
        retries: 0,
        shaky: None,
        forks: 0,
        beat: None,
    };

    /// Draws what else happens to the case of a seed, and changes its program accordingly. The stream goes on for those who
    /// do it.
    pub(super) fn draw(seed: u64, program: &mut Program) -> (Self, Chance) {
        let mut chance = Chance::new(mix(seed, SALT));
        let mut extras = Self {
            retries: match chance.once_in(3) {
                true => 1 + chance.below(3),
                false => 0,
            },
            forks: match chance.once_in(4) {
                true => 1 + chance.below(3),
                false => 0,
            },
            ..Self::NONE
        };
        if extras.retries > 0 && !chance.once_in(4) {
            let mends = 1 + chance.below(3);
            let alone = shake(program, mends, true, &mut chance);
            extras.shaky = Some(Shaky { mends, alone });
        }
        if chance.once_in(4) {
            extras.beat = Some(Beat::draw(&mut chance));
        }
        (extras, chance)
    }
}

/// Puts a part somewhere into a program that fails until the world was mended so often. Says whether nothing is dropped when it
/// fails.
fn shake(program: &mut Program, mends: u64, alone: bool, chance: &mut Chance) -> bool {
    let deeper = !chance.once_in(3);
    let some = |parts: &mut Vec<Program>, alone: bool, chance: &mut Chance| {
        let place = usize::try_from(chance.below(parts.len() as u64)).expect("an index");
        shake(&mut parts[place], mends, alone, chance)
    };
    match program {
        Program::Chain(parts) | Program::Join(parts) if deeper => some(parts, alone, chance),
        Program::Race(parts) | Program::Unordered(parts) if deeper => some(parts, false, chance),
        Program::Loop { body, .. } | Program::Child(body) if deeper => {
            shake(body, mends, alone, chance)
        }
        Program::Limited { body, .. } if deeper => shake(body, mends, false, chance),
        Program::Started { child, .. } if deeper && chance.once_in(2) => {
            shake(child, mends, alone, chance)
        }
        Program::Started { meanwhile, .. } if deeper => shake(meanwhile, mends, false, chance),
        _ => {
            // No other part has such a tag.
            let tag = 1_000 + chance.below(1_000);
            let shaky = Program::Shaky { tag, mends };
            let other = std::mem::replace(program, Program::Nap { ms: 0 });
            *program = Program::Chain(match chance.once_in(2) {
                true => vec![shaky, other],
                false => vec![other, shaky],
            });
            alone
        }
    }
}
