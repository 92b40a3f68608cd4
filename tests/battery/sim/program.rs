//! Random workflows as data, and the model of what they must come to.
//!
//! Owns the language, its generator and its meaning without an engine. Never runs anything.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::chance::{Chance, mix};

/// What a workflow does. Every part takes a number and gives one.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Program {
    /// A step that fails so many attempts first.
    Step { tag: u64, failures: u32 },
    /// A step that fails for good; the workflow goes on with another number.
    Broken { tag: u64 },
    /// A step that is taken back if the run does not complete.
    Kept { tag: u64 },
    /// A durable sleep.
    Nap { ms: u64 },
    /// Takes so many signals of a name, which no other part of the run takes.
    Hear { name: u64, count: u64 },
    /// One after the other.
    Chain(Vec<Program>),
    /// The same, over and over.
    Loop { times: u64, body: Box<Program> },
    /// All at once.
    Join(Vec<Program>),
    /// Whoever is first; the others are dropped.
    Race(Vec<Program>),
    /// At once, and taken in the order in which they end.
    Unordered(Vec<Program>),
    /// For so many milliseconds at most.
    Limited { ms: u64, body: Box<Program> },
    /// In a child that is waited for.
    Child(Box<Program>),
    /// In a child that begins anew so many times, with a checkpoint between two passes.
    Passes { tag: u64, times: u64 },
    /// In a child that goes on as a new run so many times.
    Onward { tag: u64, times: u64 },
    /// A step that leaves a message in the outbox.
    Post { tag: u64 },
    /// A step that fails until the world was mended so often, and the run with it.
    Shaky { tag: u64, mends: u64 },
    /// In a child that is started first, and waited for afterwards.
    Started {
        child: Box<Program>,
        meanwhile: Box<Program>,
    },
}

/// How a whole run ends if nobody interferes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ending {
    Value,
    Failure,
    Abort,
}

/// Makes programs.
pub(crate) struct Maker {
    chance: Chance,
    /// The tags and names that were given out: each is used once.
    next: u64,
    /// How many more parts there may be.
    budget: u64,
    /// How many loops are around: what is repeated hears nothing, because a name is heard once.
    loops: u32,
}

impl Maker {
    pub(crate) fn new(chance: Chance) -> Self {
        Self {
            chance,
            next: 0,
            budget: 14,
            loops: 0,
        }
    }

    fn fresh(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Makes a program.
    pub(crate) fn program(&mut self, depth: u32) -> Program {
        self.budget = self.budget.saturating_sub(1);
        let kinds = if depth == 0 || self.budget == 0 {
            9
        } else {
            23
        };
        match self.chance.below(kinds) {
            0..=3 => Program::Step {
                tag: self.fresh(),
                failures: u32::from(self.chance.once_in(4)) * 2,
            },
            4 => Program::Kept { tag: self.fresh() },
            5 => Program::Broken { tag: self.fresh() },
            6 => Program::Nap {
                ms: self.chance.one_of(&[0, 1, 40, 90_000_000]),
            },
            7 | 8 if self.loops > 0 => Program::Nap { ms: 1 },
            7 | 8 => Program::Hear {
                name: self.fresh(),
                count: 1 + self.chance.below(3),
            },
            9..=11 => Program::Chain(self.several(depth)),
            12 => {
                self.loops += 1;
                let body = self.boxed(depth);
                self.loops -= 1;
                let times = 1 + self.chance.below(4);
                Program::Loop { times, body }
            }
            13 | 14 => Program::Join(self.several(depth)),
            15 => Program::Race(self.several(depth)),
            16 => Program::Unordered(self.several(depth)),
            17 => Program::Limited {
                ms: self.chance.one_of(&[0, 1, 50, 100_000_000]),
                body: self.boxed(depth),
            },
            18 => Program::Child(self.boxed(depth)),
            19 => Program::Passes {
                tag: self.fresh(),
                times: 1 + self.chance.below(3),
            },
            20 => Program::Onward {
                tag: self.fresh(),
                times: 1 + self.chance.below(3),
            },
            21 => Program::Post { tag: self.fresh() },
            _ => Program::Started {
                child: self.boxed(depth),
                meanwhile: self.boxed(depth),
            },
        }
    }

    fn several(&mut self, depth: u32) -> Vec<Program> {
        (0..=self.chance.below(3))
            .map(|_| self.program(depth - 1))
            .collect()
    }

    fn boxed(&mut self, depth: u32) -> Box<Program> {
        Box::new(self.program(depth - 1))
    }
}

/// The number that the `n`th signal of a name carries.
pub(crate) fn signal_value(name: u64, n: u64) -> u64 {
    mix(mix(name, 11), n)
}

/// What a step makes of what it is given.
pub(crate) fn step_value(tag: u64, given: u64) -> u64 {
    mix(given, tag)
}

/// What a workflow goes on with when a step has failed for good.
pub(crate) fn broken_value(tag: u64, given: u64) -> u64 {
    mix(given, !tag)
}

/// Puts numbers together, in order.
pub(crate) fn fold(values: impl IntoIterator<Item = u64>) -> u64 {
    values.into_iter().fold(7, mix)
}

/// What the `n`th branch is given.
pub(crate) fn branch(given: u64, n: usize) -> u64 {
    mix(given, n as u64 + 101)
}

/// More possible values than this are not told apart.
const MANY: usize = 512;

/// All numbers that a program may give; `None` if there are too many.
pub(crate) fn possible(program: &Program, given: u64) -> Option<BTreeSet<u64>> {
    let one = |value| Some(BTreeSet::from([value]));
    let all = |programs: &[Program]| -> Option<Vec<BTreeSet<u64>>> {
        let branches = programs.iter().enumerate();
        branches
            .map(|(n, program)| possible(program, branch(given, n)))
            .collect()
    };
    match program {
        Program::Step { tag, .. }
        | Program::Shaky { tag, .. }
        | Program::Kept { tag }
        | Program::Post { tag } => one(step_value(*tag, given)),
        Program::Passes { tag, times } | Program::Onward { tag, times } => {
            one((0..=*times).fold(given, |value, _| step_value(*tag, value)))
        }
        Program::Broken { tag } => one(broken_value(*tag, given)),
        Program::Nap { .. } => one(given),
        Program::Hear { name, count } => one(fold((0..*count).map(|n| signal_value(*name, n)))),
        Program::Chain(programs) => {
            let parts: Vec<&Program> = programs.iter().collect();
            in_turn(&parts, given)
        }
        Program::Loop { times, body } => {
            let parts: Vec<&Program> = (0..*times).map(|_| &**body).collect();
            in_turn(&parts, given)
        }
        Program::Join(programs) => products(&all(programs)?, false),
        Program::Unordered(programs) => products(&all(programs)?, true),
        Program::Race(programs) => {
            let mut any = BTreeSet::new();
            for (n, values) in all(programs)?.into_iter().enumerate() {
                any.extend(values.into_iter().map(|value| mix(value, n as u64)));
            }
            Some(any)
        }
        Program::Limited { body, .. } => {
            let mut values = possible(body, given)?;
            values.insert(mix(given, 5));
            Some(values)
        }
        Program::Child(body) => possible(body, given),
        Program::Started { child, meanwhile } => {
            let (child, meanwhile) = (possible(child, given)?, possible(meanwhile, given)?);
            products(&[meanwhile, child], false)
        }
    }
    .filter(|values| values.len() <= MANY)
}

fn in_turn(programs: &[&Program], given: u64) -> Option<BTreeSet<u64>> {
    let mut values = BTreeSet::from([given]);
    for program in programs {
        let mut next = BTreeSet::new();
        for value in values {
            next.extend(possible(program, value)?);
            if next.len() > MANY {
                return None;
            }
        }
        values = next;
    }
    Some(values)
}

/// All ways to put one value of each set together, in order or in any order.
fn products(sets: &[BTreeSet<u64>], any_order: bool) -> Option<BTreeSet<u64>> {
    let mut rows: Vec<Vec<u64>> = vec![Vec::new()];
    for set in sets {
        let mut next = Vec::new();
        for row in &rows {
            for value in set {
                let places = if any_order {
                    0..=row.len()
                } else {
                    row.len()..=row.len()
                };
                for place in places {
                    let mut longer = row.clone();
                    longer.insert(place, *value);
                    next.push(longer);
                }
            }
        }
        if next.len() > MANY {
            return None;
        }
        rows = next;
    }
    Some(rows.into_iter().map(fold).collect())
}

/// The signals that a program waits for, in its own run or in a child: the name, and how many.
pub(crate) fn heard(program: &Program, names: &mut Vec<(u64, u64)>) {
    match program {
        Program::Hear { name, count } => names.push((*name, *count)),
        Program::Chain(parts)
        | Program::Join(parts)
        | Program::Race(parts)
        | Program::Unordered(parts) => parts.iter().for_each(|part| heard(part, names)),
        Program::Loop { body, .. } | Program::Limited { body, .. } | Program::Child(body) => {
            heard(body, names);
        }
        Program::Started { child, meanwhile } => {
            heard(child, names);
            heard(meanwhile, names);
        }
        Program::Step { .. }
        | Program::Shaky { .. }
        | Program::Broken { .. }
        | Program::Kept { .. }
        | Program::Passes { .. }
        | Program::Onward { .. }
        | Program::Post { .. }
        | Program::Nap { .. } => {}
    }
}

/// Says whether a program keeps anything that is taken back if its run, or a child that does it, does not complete.
pub(crate) fn keeps(program: &Program) -> bool {
    match program {
        Program::Kept { .. } => true,
        Program::Chain(parts)
        | Program::Join(parts)
        | Program::Race(parts)
        | Program::Unordered(parts) => parts.iter().any(keeps),
        Program::Loop { body, .. } | Program::Limited { body, .. } | Program::Child(body) => {
            keeps(body)
        }
        Program::Started { child, meanwhile } => keeps(child) || keeps(meanwhile),
        _ => false,
    }
}
