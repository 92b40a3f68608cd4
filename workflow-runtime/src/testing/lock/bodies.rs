//! What a changed body means for runs under way.
//!
//! Owns the comparison of what a workflow calls. Strict replay delivers recorded outcomes in their order, each to a call
//! that waits; so a call more is harmless only behind everything that can be on record, a call less never is. Code behind
//! a new `patched(..)` is no change: runs that had got past that place do not take it.

use std::collections::BTreeSet;

use super::align::pairs;
use super::compare::{Changes, workflow_name};
use super::model::{Item, Manifest, StepEntry, What, WorkflowEntry, same};
use super::patches;
use super::report::{Change, Class};

/// Compares the bodies of two versions of a workflow's code.
pub(super) fn compare(
    old: &Manifest,
    new: &Manifest,
    was: &WorkflowEntry,
    now: &WorkflowEntry,
    changes: &mut Changes,
) {
    let subject = workflow_name(now);
    let (before, after) = (patches::named(&was.body), patches::named(&now.body));
    let fresh: BTreeSet<_> = after.asked.difference(&before.asked).cloned().collect();
    let retired: BTreeSet<_> = before.asked.difference(&after.asked).cloned().collect();
    for patch in &fresh {
        changes.push(
            Change::new(
                Class::Safe,
                &subject,
                &format!("patch {patch} is new"),
                &now.at,
            )
            .was(&was.at)
            .because(
                "runs that had got past this place keep the old code, the others take the new",
            ),
        );
    }
    for patch in &retired {
        let how = match after.deprecated.contains(patch) {
            true => "only the new code of patch",
            false => "no trace of patch",
        };
        changes.push(
            Change::new(Class::Breaking, &subject, &format!("{how} {patch} is left"), &now.at)
                .was(&was.at)
                .because("runs that took the old code are parked")
                .mend(format!(
                    "when `engine.runs().workflow(\"{}\")` lists no run any more that was begun before the patch, accept it with \
                     WORKFLOWS_LOCK=update; until then put the `if` back",
                    now.name
                )),
        );
    }
    let was_body = patches::settled(&was.body, &retired, true);
    let now_body = patches::settled(&now.body, &fresh, false);
    let mut bodies = Bodies {
        old,
        new,
        subject,
        tolerant: now.tolerant,
        whole: &was_body,
        at: &now.at,
        changes,
    };
    bodies.sequence(
        &was_body,
        &now_body,
        Place {
            last: true,
            at: &now.at,
        },
    );
}

struct Bodies<'a> {
    old: &'a Manifest,
    new: &'a Manifest,
    subject: String,
    tolerant: bool,
    /// The whole old body.
    whole: &'a [Item],
    at: &'a str,
    changes: &'a mut Changes,
}

/// Where a sequence stands.
#[derive(Clone, Copy)]
struct Place<'a> {
    /// Nothing that is recorded can follow it.
    last: bool,
    /// Where it is in the code.
    at: &'a str,
}

/// An item that has no equal on the other side: what it is, in which gap, and whether nothing old stands behind it.
struct Left<'a> {
    item: &'a Item,
    gap: usize,
    at_the_end: bool,
}

const NO_RECORD: &str = "a run that has got past this place has no record of it: the next recorded outcome then belongs to \
    a call that is not waiting, and the run is parked as `Diverged`";
const NOT_ASKED: &str = "a run that has its outcome on record finds nobody who asks for it, and is parked as `Diverged`";

impl Bodies<'_> {
    fn sequence(&mut self, was: &[Item], now: &[Item], place: Place<'_>) {
        let (was, now): (Vec<&Item>, Vec<&Item>) = (visible(was), visible(now));
        let pairs = pairs(&was, &now);
        let (mut gone, mut added) = (Vec::new(), Vec::new());
        let (mut i, mut j) = (0, 0);
        let ends = std::iter::once((was.len(), now.len()));
        for (gap, (to_i, to_j)) in pairs.iter().copied().chain(ends).enumerate() {
            let left = |item, at_the_end| Left {
                item,
                gap,
                at_the_end,
            };
            gone.extend(was[i..to_i].iter().map(|item| left(*item, false)));
            let at_the_end = to_i == was.len() && i == to_i;
            added.extend(now[j..to_j].iter().map(|item| left(*item, at_the_end)));
            if to_i < was.len() && to_j < now.len() {
                let (was_item, now_item) = (was[to_i], now[to_j]);
                if !was_item.same(now_item) {
                    let last = place.last && to_i + 1 == was.len();
                    let at = &*now_item.at;
                    self.inside(was_item, now_item, Place { last, at });
                }
            }
            (i, j) = (to_i + 1, to_j + 1);
        }
        self.leftovers(gone, added, place);
    }

    /// Two items with the same head and other bodies.
    fn inside(&mut self, was: &Item, now: &Item, place: Place<'_>) {
        let last = match was.what {
            What::Loop { .. } => false,
            // What is counted in one scope by several branches is counted in the order of their calls.
            What::Part => {
                place.last
                    && matches!(
                        &was.body[..],
                        [Item {
                            what: What::Block,
                            ..
                        }]
                    )
            }
            _ => place.last,
        };
        if let What::Together { .. } = was.what {
            let parts = was.body.iter().zip(&now.body);
            if was.body.len() == now.body.len() && !reordered(was, now) {
                for (was, now) in parts.filter(|(was, now)| !was.same(now)) {
                    self.inside(was, now, Place { last, at: &now.at });
                }
                return;
            }
            if reordered(was, now) {
                return self.reordered(was, now);
            }
        }
        self.sequence(&was.body, &now.body, Place { last, ..place });
    }

    /// Branches that change their places: calls of different names are counted apart, blocks are not.
    fn reordered(&mut self, was: &Item, now: &Item) {
        let name = |part: &Item| match &part.body[..] {
            [
                Item {
                    what: What::Step { name, .. } | What::Child { name, .. },
                    ..
                },
            ] => Some(name.clone()),
            _ => None,
        };
        let names: Option<BTreeSet<_>> = now.body.iter().map(name).collect();
        let apart = names.is_some_and(|names| names.len() == now.body.len());
        let what = format!("the branches of `{}` stand in another order", now.what);
        let change = |class| Change::new(class, &self.subject, &what, &now.at).was(&was.at);
        let change = match apart {
            true => change(Class::Safe)
                .because("their ids do not depend on the order, and neither does that of the deliveries"),
            false => change(Class::NeedsPatch)
                .because("`async` blocks and calls of one name are counted in their order, so ids move")
                .mend("keep the order; `scope(\"name\", ..)` around a branch makes it independent of it".into()),
        };
        self.changes.push(change);
    }

    fn leftovers(&mut self, mut gone: Vec<Left<'_>>, mut added: Vec<Left<'_>>, place: Place<'_>) {
        let mut at = 0;
        while at < gone.len() {
            let was = &gone[at];
            let moved = added.iter().position(|now| was.item.same(now.item));
            let like = |now: &Left<'_>| now.gap == was.gap && self.replaces(was.item, now.item);
            let replaced = added.iter().position(like);
            match (moved, replaced) {
                (Some(to), _) => {
                    let (was, now) = (gone.remove(at), added.remove(to));
                    self.moved(was.item, now.item);
                }
                (None, Some(by)) => {
                    let (was, now) = (gone.remove(at), added.remove(by));
                    self.replaced(was.item, now.item, place);
                }
                (None, None) => at += 1,
            }
        }
        gone.iter().for_each(|left| self.gone(left.item, place));
        for left in added {
            self.added(&left, place);
        }
    }

    /// Says whether an item is another one under a new name or head.
    fn replaces(&self, was: &Item, now: &Item) -> bool {
        match (&was.what, &now.what) {
            (What::Step { name: was, .. }, What::Step { name: now, .. }) if was != now => {
                let step = |all: &[StepEntry], name: &str| {
                    let step = all.iter().find(|step| step.name == name);
                    step.map(|step| step.signature.clone())
                };
                step(&self.old.steps, was) == step(&self.new.steps, now)
                    && step(&self.old.steps, now).is_none()
                    && step(&self.new.steps, was).is_none()
            }
            (What::Step { name: was, .. }, What::Step { name: now, .. })
            | (What::Child { name: was, .. }, What::Child { name: now, .. }) => was == now,
            (What::Branch { .. }, What::Branch { .. })
            | (What::Loop { .. }, What::Loop { .. })
            | (What::Arm { .. }, What::Arm { .. }) => same(&was.body, &now.body),
            _ => false,
        }
    }

    fn change(&self, class: Class, what: &str, was: &Item, now: &Item) -> Change {
        Change::new(class, &self.subject, what, &now.at).was(&was.at)
    }

    fn moved(&mut self, was: &Item, now: &Item) {
        let name = title(now);
        self.changes.push(
            self.change(Class::NeedsPatch, &format!("{name} stands at another place"), was, now)
                .because("recorded outcomes are delivered in their order, each to a call that waits: a run that has the calls in \
                    the old order is parked as `Diverged`")
                .mend(format!("if patched(\"{}\") {{ the new order }} else {{ the old order }}", word(now))),
        );
    }

    fn replaced(&mut self, was: &Item, now: &Item, place: Place<'_>) {
        let change = match (&was.what, &now.what) {
            (What::Step { name: old, .. }, What::Step { name: new, .. }) if old != new => self
                .change(Class::Breaking, &format!("step `{old}` is called `{new}` now"), was, now)
                .because("the name is part of the step's id and of its record: the run is parked as `Diverged`")
                .mend(format!("keep the name: `#[step(name = \"{old}\")]`")),
            (What::Step { name, key: old }, What::Step { key: new, .. })
            | (What::Child { name, key: old }, What::Child { key: new, .. }) => {
                let key = |key: &Option<String>| key.clone().unwrap_or_else(|| "its place".into());
                let what = format!("`{name}` was named by {} and is by {}", key(old), key(new));
                self.change(Class::NeedsPatch, &what, was, now)
                    .because("what a call is named by is part of its id: the run is parked as `Diverged`")
                    .mend(format!("if patched(\"key of {name}\") {{ the new call }} else {{ the old one }}"))
            }
            _ => {
                let what = format!("`{}` was `{}`", now.what, was.what);
                self.change(Class::NeedsPatch, &what, was, now)
                    .because("a run may go another way than the one that is on record, and is parked as `Diverged` then")
                    .mend(format!(
                        "if patched(\"{}\") {{ the new condition }} else {{ the old one }}; if both always say the same, \
                         accept it with WORKFLOWS_LOCK=update",
                        word(now)
                    ))
            }
        };
        let _ = place;
        self.changes.push(change);
    }

    fn gone(&mut self, was: &Item, place: Place<'_>) {
        let what = format!("{} is gone", title(was));
        let at = if place.at.is_empty() {
            self.at
        } else {
            place.at
        };
        let change = |class| Change::new(class, &self.subject, &what, at).was(&was.at);
        let change = match &was.what {
            What::Call { function, .. } if matches!(&**function, "wait_for" | "signals") => change(Class::Safe)
                .because("a signal is on record when it came, whether somebody waits for it or not"),
            What::Step { name, .. } if self.tolerant && !self.is_called_twice(name) => change(Class::Safe)
                .because("replay is tolerant: outcomes that nobody asks for are reported in `engine.warnings()`"),
            _ => change(Class::NeedsPatch)
                .because(NOT_ASKED)
                .mend(format!("if !patched(\"no {}\") {{ the old code }}", word(was))),
        };
        self.changes.push(change);
    }

    fn added(&mut self, left: &Left<'_>, place: Place<'_>) {
        let now = left.item;
        let what = format!("{} is new", title(now));
        let change = |class| Change::new(class, &self.subject, &what, &now.at);
        let tolerated = match &now.what {
            What::Step { name, .. } => self.tolerant && !self.is_called(name),
            _ => false,
        };
        let change = match tolerated {
            _ if left.at_the_end && place.last => change(Class::Safe)
                .because("nothing that can be on record comes after it"),
            true => change(Class::Safe)
                .because("replay is tolerant: a call that the journal does not know runs as an inserted step"),
            false => change(Class::NeedsPatch).because(NO_RECORD).mend(format!(
                "if patched(\"{}\") {{ the new code }}{}",
                word(now),
                match self.tolerant {
                    true => "; or give the call a name or a `.key(..)` of its own",
                    false => "",
                }
            )),
        };
        self.changes.push(change);
    }

    fn is_called(&self, name: &str) -> bool {
        calls(self.whole, name) > 0
    }

    fn is_called_twice(&self, name: &str) -> bool {
        calls(self.whole, name) > 1
    }
}

/// How often a step is called.
fn calls(items: &[Item], name: &str) -> usize {
    let own = |item: &Item| matches!(&item.what, What::Step { name: it, .. } if it == name);
    let count = |item: &Item| usize::from(own(item)) + calls(&item.body, name);
    items.iter().map(count).sum()
}

/// What leaves no trace in a journal's order is left out.
fn visible(items: &[Item]) -> Vec<&Item> {
    let hidden = |item: &&Item| {
        matches!(&item.what, What::Call { function, .. }
            if matches!(&**function, "publish" | "patched" | "deprecate_patch" | "undo_with"))
    };
    items.iter().filter(|item| !hidden(item)).collect()
}

/// Says whether two groups have the same branches in another order.
fn reordered(was: &Item, now: &Item) -> bool {
    let mut left: Vec<&Item> = now.body.iter().collect();
    let all = was.body.iter().all(|part| {
        let found = left.iter().position(|it| it.same(part));
        found.map(|at| left.remove(at)).is_some()
    });
    all && left.is_empty() && !same(&was.body, &now.body)
}

/// What an item is called in a message.
fn title(item: &Item) -> String {
    match &item.what {
        What::Step { name, .. } => format!("a call of step `{name}`"),
        What::Child { name, .. } => format!("a call of workflow `{name}`"),
        What::Call { function, name } => match name {
            Some(name) => format!("`{function}({name})`"),
            None => format!("`{function}(..)`"),
        },
        What::Block => "an `async` block".to_owned(),
        What::Part => "a branch that goes on beside others".to_owned(),
        What::Helper { name } => format!("a call of helper `{name}`"),
        other => format!("`{other}`"),
    }
}

/// A name for a patch about an item.
fn word(item: &Item) -> String {
    match &item.what {
        What::Step { name, .. } | What::Child { name, .. } | What::Helper { name } => name.clone(),
        What::Call { function, .. } => function.clone(),
        _ => item.body.first().map_or_else(|| "change".to_owned(), word),
    }
}
