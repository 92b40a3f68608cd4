//! Whether values of old types are taken for values of new ones.
//!
//! Owns the rules for types. Payloads are MessagePack with names: fields are found by name, integers have no width,
//! `Some(x)` is `x`. A value that is read back must fit the new type; a value whose digest is compared must look the same.

use super::compare::Changes;
use super::model::{FieldEntry, FieldList, Held, Manifest, Parts, Ty, TypeEntry};
use super::report::{Change, Class};

/// What becomes of a recorded value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// It is read as the new type.
    Read,
    /// Its digest is compared with that of a new value.
    Digest,
}

/// What was found about the values of one step or workflow.
pub(super) struct Values<'a> {
    old: &'a Manifest,
    new: &'a Manifest,
    subject: String,
    at: String,
    was_at: String,
    /// Pairs of types that are being compared: types may stand inside themselves.
    pairs: Vec<(String, String)>,
    found: Vec<Change>,
}

const UNREADABLE: &str =
    "recorded values cannot be read as that: runs under way are parked as `Undecodable`";
const OTHER_INPUT: &str = "recorded inputs differ from what the code asks for now: runs under way are parked as `Diverged`";
const TOLERATED: &str = "a field that only one side has is tolerated, with a warning, if the recorded input was kept \
    (`keep_inputs_up_to`, 16 KiB unless said otherwise); a run with a larger one is parked";

impl<'a> Values<'a> {
    pub(super) fn new(
        old: &'a Manifest,
        new: &'a Manifest,
        subject: &str,
        at: &str,
        was_at: &str,
    ) -> Self {
        Self {
            old,
            new,
            subject: subject.to_owned(),
            at: at.to_owned(),
            was_at: was_at.to_owned(),
            pairs: Vec::new(),
            found: Vec::new(),
        }
    }

    pub(super) fn finish(self, changes: &mut Changes) {
        self.found
            .into_iter()
            .for_each(|change| changes.push(change));
    }

    fn change(&mut self, class: Class, what: &str, why: &str, fix: String) {
        let change = Change::new(class, &self.subject, what, &self.at)
            .was(&self.was_at)
            .because(why)
            .mend(fix);
        self.found.push(change);
    }

    pub(super) fn broken(&mut self, what: &str, why: &str, fix: String) {
        self.change(Class::Breaking, what, why, fix);
    }

    /// Something that only one side has, in an input.
    pub(super) fn tolerated(&mut self, what: &str) {
        self.change(Class::Safe, what, TOLERATED, String::new());
    }

    pub(super) fn read(&mut self, was: &Ty, now: &Ty, path: &str) {
        self.compare(Use::Read, was, now, path);
    }

    fn other(&mut self, how: Use, was: &Ty, now: &Ty, path: &str) {
        let what = format!("{path} was `{was}` and is `{now}`");
        match how {
            Use::Read => self.broken(
                &what,
                UNREADABLE,
                "keep the type; or give the new one to a step of another name, called behind `patched(..)`, or to a \
                 new `version` of the workflow"
                    .into(),
            ),
            Use::Digest => self.broken(
                &what,
                OTHER_INPUT,
                "keep the type; or make a step of another name and call it behind `patched(..)`".into(),
            ),
        }
    }

    pub(super) fn compare(&mut self, how: Use, was: &Ty, now: &Ty, path: &str) {
        let reads = how == Use::Read;
        match (was, now) {
            (Ty::Option(was), Ty::Option(now)) | (Ty::List(was), Ty::List(now)) => {
                self.compare(how, was, now, path);
            }
            (was, Ty::Option(now)) if !matches!(was, Ty::Opaque(_)) => {
                if *was != Ty::Plain("unit".into()) {
                    self.compare(how, was, now, path);
                }
            }
            (Ty::Option(was), now) if how == Use::Digest => self.compare(how, was, now, path),
            (Ty::Option(inner), now) if **inner == *now => self.broken(
                &format!("{path} was `{was}` and is `{now}`"),
                "a recorded `None` cannot be read as that: such runs are parked as `Undecodable`",
                "go on taking an `Option`".into(),
            ),
            (Ty::Map(old_key, old_value), Ty::Map(key, value)) => {
                self.compare(how, old_key, key, path);
                self.compare(how, old_value, value, path);
            }
            (Ty::Tuple(was), Ty::Tuple(now)) if was.len() == now.len() => {
                for (was, now) in was.iter().zip(now) {
                    self.compare(how, was, now, path);
                }
            }
            (Ty::Tuple(parts), Ty::List(now)) => {
                parts
                    .iter()
                    .for_each(|was| self.compare(how, was, now, path));
            }
            (Ty::Plain(old), Ty::Plain(new)) => {
                let fits = match how {
                    Use::Read => fits(old, new),
                    Use::Digest => old == new || (integer(old).is_some() && integer(new).is_some()),
                };
                if !fits {
                    self.other(how, was, now, path);
                }
            }
            (Ty::Named(old), Ty::Named(new)) => self.named(how, (old, new), (was, now), path),
            (was, now) if was == now => {}
            (Ty::Opaque(_), _) | (_, Ty::Opaque(_)) if reads => {
                let what = format!("{path} was `{was}` and is `{now}`, which cannot be compared");
                self.broken(
                    &what,
                    "serde decides what such a type takes only when it sees the value",
                    "replay recorded journals with the new code; if they fit, accept it with WORKFLOWS_LOCK=update".into(),
                );
            }
            _ => self.other(how, was, now, path),
        }
    }

    fn named(&mut self, how: Use, names: (&str, &str), types: (&Ty, &Ty), path: &str) {
        let pair = (names.0.to_owned(), names.1.to_owned());
        if self.pairs.contains(&pair) {
            return;
        }
        let find = |all: &'a [TypeEntry], name: &str| all.iter().find(|it| it.name == name);
        let (was, now) = (
            find(&self.old.types, names.0),
            find(&self.new.types, names.1),
        );
        self.pairs.push(pair);
        match (was.map(|it| &it.parts), now.map(|it| &it.parts)) {
            (Some(Parts::Struct(was)), Some(Parts::Struct(now))) => {
                self.fields(how, was, now, names.1);
            }
            (Some(Parts::Enum(was)), Some(Parts::Enum(now))) => {
                self.variants(how, was, now, names.1);
            }
            _ => self.other(how, types.0, types.1, path),
        }
        self.pairs.pop();
    }

    fn fields(&mut self, how: Use, was: &FieldList, now: &FieldList, name: &str) {
        let matches = |old: &FieldEntry, new: &FieldEntry| {
            old.name == new.name || (how == Use::Read && new.aliases.contains(&old.name))
        };
        let gone: Vec<_> = was
            .all
            .iter()
            .filter(|old| !now.all.iter().any(|new| matches(old, new)))
            .collect();
        for new in &now.all {
            let path = format!("field `{}` of `{name}`", new.name);
            if let Some(old) = was.all.iter().find(|old| matches(old, new)) {
                self.compare(how, &old.ty, &new.ty, &path);
                continue;
            }
            let what = format!("{path} is new");
            match how {
                Use::Digest => self.tolerated(&what),
                Use::Read if new.may_be_missing => self.change(
                    Class::Safe,
                    &what,
                    "recorded values without it are read: it may be missing",
                    String::new(),
                ),
                Use::Read => {
                    let renamed = gone.iter().find(|old| old.ty == new.ty);
                    let renamed = renamed.map_or_else(String::new, |old| {
                        format!(
                            "; if it is `{0}` by another name, `#[serde(alias = \"{0}\")]`",
                            old.name
                        )
                    });
                    let fix = format!(
                        "`#[serde(default)]` on the field, or make it an `Option`{renamed}"
                    );
                    self.broken(&what, UNREADABLE, fix);
                }
            }
        }
        for old in gone {
            let what = format!("field `{}` of `{name}` is gone", old.name);
            match how {
                Use::Digest => self.tolerated(&what),
                Use::Read if now.closed => self.broken(
                    &what,
                    "the type refuses fields that it does not know, and recorded values have this one",
                    "take `deny_unknown_fields` off the type, or keep the field".into(),
                ),
                Use::Read => {
                    let why = "fields are read by name, and what nobody asks for is passed over";
                    self.change(Class::Safe, &what, why, String::new());
                }
            }
        }
    }

    fn variants(&mut self, how: Use, was: &[(String, Held)], now: &[(String, Held)], name: &str) {
        for (variant, held) in was {
            let path = format!("variant `{variant}` of `{name}`");
            let Some((_, new)) = now.iter().find(|(it, _)| it == variant) else {
                let why = if how == Use::Read {
                    UNREADABLE
                } else {
                    OTHER_INPUT
                };
                let fix = format!("keep it; if it was renamed, `#[serde(rename = \"{variant}\")]`");
                self.broken(&format!("{path} is gone"), why, fix);
                continue;
            };
            match (held, new) {
                (Held::Nothing, Held::Nothing) | (Held::Unknown, Held::Unknown) => {}
                (Held::Value(was), Held::Value(now)) => self.compare(how, was, now, &path),
                (Held::Fields(was), Held::Fields(now)) => {
                    self.fields(how, was, now, &format!("{name}::{variant}"));
                }
                _ => {
                    let why = if how == Use::Read {
                        UNREADABLE
                    } else {
                        OTHER_INPUT
                    };
                    let fix = "keep what it holds, and add a variant".into();
                    self.broken(&format!("{path} holds something else"), why, fix);
                }
            }
        }
        let known = |variant: &str| was.iter().any(|(it, _)| it == variant);
        for (variant, _) in now.iter().filter(|(variant, _)| !known(variant)) {
            self.change(
                Class::Safe,
                &format!("variant `{variant}` of `{name}` is new"),
                "no recorded value is of it",
                String::new(),
            );
        }
    }
}

/// Whether an integer type has a sign, and how many bits.
fn integer(name: &str) -> Option<(bool, u32)> {
    let (sign, bits) = name.split_at_checked(1)?;
    let bits = bits.parse().ok()?;
    match sign {
        "i" => Some((true, bits)),
        "u" => Some((false, bits)),
        _ => None,
    }
}

/// Says whether every value of one plain type can be read as another.
fn fits(was: &str, now: &str) -> bool {
    match (integer(was), integer(now)) {
        (Some((false, was)), Some((false, now))) | (Some((true, was)), Some((true, now))) => {
            was <= now
        }
        (Some((false, was)), Some((true, now))) => was < now,
        (Some((true, _)), Some((false, _))) => false,
        (Some((_, bits)), None) => now == "f64" && bits <= 32,
        _ => was == now || matches!((was, now), ("f32", "f64") | ("char", "string")),
    }
}
