//! What serde sees of a type, found out without a value: the type is read from a source that makes values up.
//!
//! Owns the search. A visitor is used up by one value, so nothing can be tried twice on the way: the type is read
//! again and again, each time steered to one place where something is left to find out (a variant, whether a
//! field may be missing). `reading` is one such reading, `access` what is in a value.
//!
//! What decides by looking at the value (`untagged`, `flatten`, `tag`, `deserialize_any`) cannot be seen and
//! is said to be opaque. It never reads a real payload.

mod access;
mod reading;

use std::collections::{BTreeMap, HashMap, VecDeque};

use serde::de::DeserializeOwned;

use crate::types::{Content, Field, Fields, Tree};
use reading::Reading;

/// How often one type is read at most; a type with more to it is shown as far as that goes.
const MAX_READINGS: usize = 4_000;

/// How many values are made up for one place before it is given up.
const MAX_SAMPLES: usize = 16;

/// How deep types nest before the rest is left out.
const MAX_DEPTH: usize = 48;

/// Finds out what serde sees of a type.
pub(crate) fn trace<T: DeserializeOwned>() -> Tree {
    let mut search = Search::default();
    let mut left = VecDeque::from([Aim::default()]);
    for _ in 0..MAX_READINGS {
        let Some(aim) = left.pop_front() else { break };
        search.begin(aim.clone());
        let read = T::deserialize(Reading::new(&mut search));
        if read.is_err() {
            search.failed("");
        }
        left.extend(search.found.drain(..));
        if search.changed && !search.slot("").dead {
            left.push_front(aim);
        }
    }
    search.tree("", 0)
}

/// Where a reading is steered to, and what is tried there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Aim {
    path: String,
    act: Act,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Act {
    /// Nothing in particular.
    #[default]
    Look,
    /// Take this variant.
    Take(usize),
    /// Leave this field out.
    Omit(&'static str),
    /// Offer a field that there is not.
    Extra,
}

/// What was found at a place.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Plain(&'static str),
    Option,
    List,
    Map,
    Tuple(usize),
    Struct(&'static str, &'static [&'static str]),
    Enum(&'static str, &'static [&'static str]),
    /// The content of a variant.
    Newtype,
    Same(&'static str),
    Opaque,
}

/// What is known of making a value for a place.
#[derive(Debug, Default)]
struct Slot {
    /// Which of the values is offered.
    sample: usize,
    /// None of them was taken.
    dead: bool,
    /// Names of fields by which another one was read.
    aliases: Vec<(&'static str, &'static str)>,
    /// Fields whose other names come before them.
    first: Vec<&'static str>,
    /// Fields that must be there.
    required: Vec<&'static str>,
    /// Fields of which it is known whether they must.
    tried: Vec<&'static str>,
    closed: bool,
}

/// All that is known so far.
#[derive(Debug, Default)]
struct Search {
    kinds: BTreeMap<String, Kind>,
    slots: HashMap<String, Slot>,
    aim: Aim,
    /// What is to be tried because of what this reading found.
    found: Vec<Aim>,
    /// Something failed in this reading, and that was noted.
    noted: bool,
    /// The next reading with the same aim goes otherwise.
    changed: bool,
}

impl Search {
    fn begin(&mut self, aim: Aim) {
        self.aim = aim;
        self.noted = false;
        self.changed = false;
    }

    fn slot(&mut self, path: &str) -> &mut Slot {
        self.slots.entry(path.to_owned()).or_default()
    }

    fn is_dead(&self, path: &str) -> bool {
        self.slots.get(path).is_some_and(|slot| slot.dead)
    }

    /// Notes what stands at a place; says whether that is new.
    fn note(&mut self, path: &str, kind: Kind) -> bool {
        if self.kinds.contains_key(path) {
            return false;
        }
        self.kinds.insert(path.to_owned(), kind);
        true
    }

    fn later(&mut self, path: &str, act: Act) {
        let path = path.to_owned();
        self.found.push(Aim { path, act });
    }

    /// What was offered here was not taken: something else is next time. The innermost place counts.
    fn failed(&mut self, path: &str) {
        if self.noted {
            return;
        }
        self.noted = true;
        self.changed = true;
        let slot = self.slot(path);
        slot.sample += 1;
        slot.dead = slot.sample >= MAX_SAMPLES;
    }

    /// The variant that is taken at a place.
    fn variant(&self, path: &str, variants: &[&str]) -> usize {
        if self.aim.path == path
            && let Act::Take(variant) = self.aim.act
        {
            return variant;
        }
        let on_the_way = |variant: &&str| {
            let inside = format!("{path}#{variant}");
            let rest = self.aim.path.strip_prefix(&inside);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '?', '#', '<']))
        };
        let steered = variants.iter().position(on_the_way);
        let alive = |variant: &&str| !self.is_dead(&format!("{path}#{variant}"));
        let first = || variants.iter().position(alive);
        steered.or_else(first).unwrap_or(0)
    }

    /// The fields that are offered at a place.
    fn offered(
        &mut self,
        path: &str,
        fields: &'static [&'static str],
    ) -> VecDeque<(&'static str, bool)> {
        let aimed = self.aim.path == path;
        let omit = match self.aim.act {
            Act::Omit(field) if aimed => Some(field),
            _ => None,
        };
        let Slot { aliases, first, .. } = self.slot(path);
        let (aliases, first) = (aliases.clone(), first.clone());
        let later = fields.iter().filter(|field| !first.contains(field));
        let mut offered = VecDeque::new();
        if aimed && self.aim.act == Act::Extra {
            offered.push_back((reading::NO_FIELD, false));
        }
        for field in first.iter().chain(later) {
            let alias = aliases.iter().any(|(alias, _)| alias == field);
            let dead = self.is_dead(&format!("{path}.{field}"));
            if !alias && !dead && omit != Some(*field) {
                offered.push_back((*field, true));
            }
        }
        offered
    }

    fn tree(&self, path: &str, depth: usize) -> Tree {
        let inner = |step: &str| Box::new(self.tree(&format!("{path}{step}"), depth + 1));
        match self.kinds.get(path) {
            _ if depth > MAX_DEPTH => Tree::Opaque,
            None | Some(Kind::Opaque) => Tree::Opaque,
            Some(Kind::Plain(name)) => Tree::Plain(name),
            Some(Kind::Option) => Tree::Option(inner("?")),
            Some(Kind::List) => Tree::List(inner("[]")),
            Some(Kind::Map) => match self.kinds.get(&format!("{path}<key>")) {
                // The keys are the names of fields that are not told: `flatten`.
                Some(Kind::Plain("identifier")) => Tree::Opaque,
                _ => Tree::Map(inner("<key>"), inner("<value>")),
            },
            Some(Kind::Tuple(length)) => {
                Tree::Tuple((0..*length).map(|at| *inner(&format!(".{at}"))).collect())
            }
            Some(Kind::Newtype) => *inner(".0"),
            Some(Kind::Struct(name, fields)) => Tree::Struct {
                name,
                fields: self.fields(path, fields, depth),
            },
            Some(Kind::Enum(name, variants)) => Tree::Enum {
                name,
                variants: variants
                    .iter()
                    .map(|variant| (*variant, self.content(&format!("{path}#{variant}"), depth)))
                    .collect(),
            },
            Some(Kind::Same(name)) => Tree::Same(name),
        }
    }

    fn content(&self, path: &str, depth: usize) -> Content {
        match self.kinds.get(path) {
            None => Content::Unknown,
            Some(Kind::Plain("unit")) => Content::Unit,
            Some(Kind::Struct(_, fields)) => Content::Fields(self.fields(path, fields, depth)),
            Some(_) => Content::Value(self.tree(path, depth + 1)),
        }
    }

    fn fields(&self, path: &str, fields: &'static [&'static str], depth: usize) -> Fields {
        let slot = self.slots.get(path);
        let aliases = slot.map_or(&[][..], |slot| &slot.aliases);
        let is_alias = |field: &str| aliases.iter().any(|(alias, _)| *alias == field);
        let known = |list: fn(&Slot) -> &Vec<&'static str>, field: &str| {
            slot.is_some_and(|slot| list(slot).contains(&field))
        };
        let all = fields.iter().filter(|field| !is_alias(field));
        let all = all.map(|field| Field {
            name: field,
            aliases: aliases
                .iter()
                .filter(|(_, of)| of == field)
                .map(|(alias, _)| *alias)
                .collect(),
            tree: self.tree(&format!("{path}.{field}"), depth + 1),
            may_be_missing: known(|slot| &slot.tried, field)
                && !known(|slot| &slot.required, field),
        });
        Fields {
            all: all.collect(),
            closed: slot.is_some_and(|slot| slot.closed),
        }
    }
}

#[cfg(test)]
mod tests;
