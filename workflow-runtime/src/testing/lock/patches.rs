//! Patches in bodies: which there are, and what is left of a body when one of them is decided.

use std::collections::BTreeSet;

use super::model::{Item, What};

/// The patches that a body names, each as it is written, with its quotes.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// By `patched`.
    pub(super) asked: BTreeSet<String>,
    /// By `deprecate_patch`.
    pub(super) deprecated: BTreeSet<String>,
}

/// Finds the patches that a body names.
pub(super) fn named(items: &[Item]) -> Named {
    let mut all = Named::default();
    gather(items, &mut all);
    all
}

fn gather(items: &[Item], all: &mut Named) {
    for item in items {
        match &item.what {
            What::Branch { head } => {
                all.asked
                    .extend(question(head).map(|it| it.name.to_owned()));
            }
            What::Call {
                function,
                name: Some(name),
            } if function == "patched" => {
                all.asked.insert(name.clone());
            }
            What::Call {
                function,
                name: Some(name),
            } if function == "deprecate_patch" => {
                all.deprecated.insert(name.clone());
            }
            _ => {}
        }
        gather(&item.body, all);
    }
}

/// A condition that asks for a patch.
struct Question<'a> {
    name: &'a str,
    negated: bool,
    /// Something else has to be so too.
    and_more: bool,
}

fn question(head: &str) -> Option<Question<'_>> {
    let (negated, rest) = match head.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, head),
    };
    let rest = rest.strip_prefix("workflow_runtime::").unwrap_or(rest);
    let rest = rest.strip_prefix("patched(")?;
    let end = 1 + rest.get(1..)?.find('"')?;
    let (name, rest) = rest.split_at_checked(end + 1)?;
    let rest = rest.strip_prefix(')')?;
    let and_more = rest.starts_with(" && ");
    (name.starts_with('"') && (rest.is_empty() || and_more)).then_some(Question {
        name,
        negated,
        and_more,
    })
}

/// A body as it is when these patches are taken, or are not. A condition that the answer does not decide is left.
pub(super) fn settled(items: &[Item], patches: &BTreeSet<String>, taken: bool) -> Vec<Item> {
    let mut out = Vec::new();
    for item in items {
        let body = settled(&item.body, patches, taken);
        let asked = match &item.what {
            What::Branch { head } => question(head).filter(|it| patches.contains(it.name)),
            _ => None,
        };
        let arm = asked.and_then(|it| match (taken != it.negated, it.and_more) {
            (true, true) => None,
            (true, false) => Some("yes"),
            (false, _) => Some("no"),
        });
        match arm {
            None => out.push(Item {
                body,
                ..item.clone()
            }),
            Some(arm) => {
                let is = |it: &Item| matches!(&it.what, What::Arm { when } if when == arm);
                out.extend(
                    body.into_iter()
                        .find(is)
                        .map_or_else(Vec::new, |it| it.body),
                );
            }
        }
    }
    out
}
