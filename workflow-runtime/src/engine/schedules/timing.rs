//! When a schedule ticks: cron expressions in a time zone, or intervals. Pure.
//!
//! Owns the door to croner and to jiff's time zones. A tick is a moment of the wall clock; two ticks of
//! a schedule are never the same moment. It never reads the clock and knows no runs.

use std::collections::VecDeque;
use std::time::Duration;

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone};
use serde::{Deserialize, Serialize};

use super::CatchUp;
use crate::clock::Timestamp;

/// The shortest interval: below it, a schedule is a loop.
const SHORTEST: Duration = Duration::from_millis(1);

/// A tick that nobody came to for this long was missed; until then it is late.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// The first stretch that is searched for missed ticks, from the newest on; it doubles.
const FIRST_STRETCH: Duration = Duration::from_secs(64);

/// When a schedule ticks, as its note keeps it. The order of its variants and fields is frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Timing {
    Cron { pattern: Box<str>, zone: Box<str> },
    Every { micros: u64 },
}

/// A timing that can be asked.
#[derive(Debug)]
pub(super) enum Clockwork {
    Cron {
        cron: Box<Cron>,
        zone: TimeZone,
        hands: Hands,
    },
    Every {
        micros: u64,
        anchor: Timestamp,
    },
}

/// How an expression reads the clock on a day when it is put forward or back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hands {
    /// It names its times of day: each of them comes once on every day.
    Named,
    /// It has a `*` or a step among them: it follows the clock as it goes.
    Following,
}

/// What is due.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// The ticks to be acted on, oldest first.
    pub(super) ticks: Vec<Timestamp>,
    /// Every tick up to here is settled by that.
    pub(super) settled: Timestamp,
}

impl Timing {
    /// Reads the timing.
    ///
    /// # Errors
    ///
    /// Says what is wrong with it.
    pub(super) fn clockwork(&self, anchor: Timestamp) -> Result<Clockwork, String> {
        match self {
            Self::Cron { pattern, zone } => {
                let (cron, hands) = parse(pattern).map_err(|problem| {
                    format!(
                        "`{pattern}` is not a cron expression ({problem}): it has five fields \
                         (minute, hour, day of month, month, day of week), or six with the \
                         seconds first"
                    )
                })?;
                let zone = TimeZone::get(zone).map_err(|_| {
                    format!("`{zone}` is not a time zone: use a name like `Europe/Berlin` or `UTC`")
                })?;
                let cron = Box::new(cron);
                Ok(Clockwork::Cron { cron, zone, hands })
            }
            Self::Every { micros } if *micros < SHORTEST.as_micros() as u64 => Err(format!(
                "an interval of {micros} µs is too short: the shortest is {SHORTEST:?}"
            )),
            Self::Every { micros } => Ok(Clockwork::Every {
                micros: *micros,
                anchor,
            }),
        }
    }
}

fn parse(pattern: &str) -> Result<(Cron, Hands), String> {
    let fields: Vec<_> = pattern.split_whitespace().collect();
    let times = match fields.len() {
        5 => &fields[..2],
        6 => &fields[..3],
        count => return Err(format!("it has {count} fields")),
    };
    let follows = times.iter().any(|field| field.contains(['*', '?', '/']));
    let parser = CronParser::builder()
        .seconds(Seconds::Optional)
        .year(Year::Disallowed)
        .build();
    let cron = parser.parse(pattern).map_err(|error| error.to_string())?;
    let hands = if follows {
        Hands::Following
    } else {
        Hands::Named
    };
    Ok((cron, hands))
}

/// The first tick of an expression that names its times of day.
///
/// Searched on the wall clock without its zone, and then placed: a time that does not exist on a day is the
/// first moment that does, a time that comes twice is the first one.
fn next_named(cron: &Cron, zone: &TimeZone, after: jiff::Timestamp) -> Option<jiff::Timestamp> {
    let mut wall: DateTime = zone.to_datetime(after);
    loop {
        wall = cron.find_next_occurrence(&wall, false).ok()?;
        let placed = zone.to_ambiguous_zoned(wall);
        let tick = match placed.offset() {
            AmbiguousOffset::Unambiguous { .. } | AmbiguousOffset::Fold { .. } => {
                placed.earlier().ok()?.timestamp()
            }
            AmbiguousOffset::Gap { .. } => {
                let before = placed.earlier().ok()?.timestamp();
                zone.following(before).next()?.timestamp()
            }
        };
        // A wall clock that was put back shows times whose tick has been.
        if tick > after {
            return Some(tick);
        }
    }
}

impl Clockwork {
    /// Returns the first tick after a moment, if there ever is one.
    pub(super) fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Every { micros, anchor } => {
                let since = match after.as_micros().checked_sub(anchor.as_micros()) {
                    None => return Some(*anchor),
                    Some(since) => since,
                };
                let ticks = since / micros + 1;
                let next = ticks
                    .checked_mul(*micros)?
                    .checked_add(anchor.as_micros())?;
                Some(Timestamp::from_micros(next))
            }
            Self::Cron { cron, zone, hands } => {
                let micros = i64::try_from(after.as_micros()).ok()?;
                let after = jiff::Timestamp::from_microsecond(micros).ok()?;
                let next = match hands {
                    Hands::Named => next_named(cron, zone, after)?,
                    Hands::Following => {
                        let after = after.to_zoned(zone.clone());
                        cron.find_next_occurrence(&after, false).ok()?.timestamp()
                    }
                };
                // A search that does not move on would tick for ever.
                let micros = u64::try_from(next.as_microsecond()).ok()?;
                (next > after).then_some(Timestamp::from_micros(micros))
            }
        }
    }

    /// Returns what is due at `now`; `None` if no tick is.
    pub(super) fn due(
        &self,
        cursor: Timestamp,
        now: Timestamp,
        end_at: Option<Timestamp>,
        catch_up: CatchUp,
    ) -> Option<Due> {
        let settled = end_at.map_or(now, |end| end.min(now));
        if self.next_after(cursor)? > settled {
            return None;
        }
        let missed_until = now.before(GRACE).min(settled);
        let kept = match catch_up {
            CatchUp::None => 0,
            CatchUp::Last => 1,
            CatchUp::All { at_most } => at_most as usize,
        };
        let mut ticks = self.latest(cursor, missed_until, kept);
        ticks.extend(self.between(cursor.max(missed_until), settled));
        let ticks = ticks.into();
        Some(Due { ticks, settled })
    }

    /// Returns the latest `count` ticks after `from` and not after `to`, oldest first.
    ///
    /// Searched backwards in stretches that double, so that a year of seconds costs no more than
    /// what is kept.
    fn latest(&self, from: Timestamp, to: Timestamp, count: usize) -> VecDeque<Timestamp> {
        let mut latest = VecDeque::new();
        if count == 0 || to <= from {
            return latest;
        }
        let mut stretch = FIRST_STRETCH;
        loop {
            let begin = to.before(stretch).max(from);
            latest.clear();
            for tick in self.between(begin, to) {
                if latest.len() == count {
                    latest.pop_front();
                }
                latest.push_back(tick);
            }
            if latest.len() == count || begin == from {
                return latest;
            }
            stretch *= 2;
        }
    }

    fn between(&self, from: Timestamp, to: Timestamp) -> impl Iterator<Item = Timestamp> {
        let first = self.next_after(from);
        std::iter::successors(first, |tick| self.next_after(*tick)).take_while(move |t| *t <= to)
    }
}
