//! From the shapes that the macros left to what a lock file says.

use std::collections::BTreeMap;

use super::model::{
    Announced, FieldEntry, FieldList, Held, Item, Manifest, Parts, Signature, StepEntry, Ty,
    TypeEntry, What, WorkflowEntry,
};
use crate::call::{self, StepDefinition, WorkflowDefinition};
use crate::duration::short;
use crate::replay::OnStale;
use crate::shape::{Callee, HelperDefinition, Node, Shape, Target, reachable};
use crate::types::{Content, Fields, Returned, Tree};

/// Functions of this crate that are shown: what they do is on record, or decides what is.
const SHOWN: &[&str] = &[
    "abort",
    "abort_keep",
    "checkpoint",
    "continue_as_new",
    "deprecate_patch",
    "hook",
    "patched",
    "publish",
    "scope",
    "signals",
    "sleep",
    "sleep_until",
    "start_child",
    "timeout",
    "undo_with",
    "wait_for",
];

/// Gathers what these workflows are made of.
pub(super) fn manifest(workflows: &[&'static WorkflowDefinition]) -> Manifest {
    let mut workflows = workflows.to_vec();
    workflows.sort_by_key(|it| (it.name, it.version));
    let mut types = Types::default();
    let mut steps: Vec<&'static StepDefinition> = Vec::new();
    let mut entries = Vec::new();
    for definition in workflows {
        reachable((definition.about.shape)(), &mut |target| {
            if let Target::Step(step) = target
                && !steps.iter().any(|it| place(it) == place(step))
            {
                steps.push(step);
            }
        });
        entries.push(workflow(definition, &mut types));
    }
    steps.sort_by_key(|it| (it.name, it.file, it.line));
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    let steps = steps.into_iter().map(|definition| {
        let count = seen.entry(definition.name).or_default();
        *count += 1;
        step(definition, *count, &mut types)
    });
    let steps = steps.collect();
    let mut types = types.entries;
    types.sort_by(|one, other| one.0.name.cmp(&other.0.name));
    Manifest {
        workflows: entries,
        steps,
        types: types.into_iter().map(|(entry, _)| entry).collect(),
    }
}

fn place(step: &StepDefinition) -> (&'static str, u32, &'static str) {
    (step.file, step.line, step.name)
}

fn workflow(definition: &'static WorkflowDefinition, types: &mut Types) -> WorkflowEntry {
    let about = &definition.about;
    let inside = Inside {
        shape: (about.shape)(),
        file: definition.file,
        helpers: &[],
    };
    WorkflowEntry {
        name: definition.name.to_owned(),
        version: definition.version,
        tolerant: definition.changes == call::CodeChanges::Tolerant,
        signature: types.signature(
            definition.args,
            about.types,
            about.seen,
            (about.returned)(),
            about.returns,
        ),
        body: inside.items(inside.shape.body),
        at: format!("{}:{}", definition.file, definition.line),
    }
}

/// A step; of several with one name, all but the first are numbered.
fn step(definition: &'static StepDefinition, count: usize, types: &mut Types) -> StepEntry {
    let about = &definition.about;
    StepEntry {
        name: match count {
            1 => definition.name.to_owned(),
            n => format!("{}#{n}", definition.name),
        },
        signature: types.signature(
            definition.args,
            about.types,
            about.seen,
            (about.returned)(),
            about.returns,
        ),
        key: about.key.map(one_line),
        announced: match definition.announced {
            call::Announced::No => Announced::No,
            call::Announced::Intent => Announced::Intent,
            call::Announced::AtMostOnce => Announced::AtMostOnce,
        },
        fresh: definition.fresh_for.map(|fresh| {
            let then = match fresh.on_stale {
                OnStale::Rerun => "rerun",
                OnStale::Abort => "abort",
            };
            format!("{}, then {then}", short(fresh.limit))
        }),
        undone_by: about.undone_by.map(|(name, _)| name.to_owned()),
        at: format!("{}:{}", definition.file, definition.line),
    }
}

/// What is being read: a shape, where it is written, and the helpers around it.
struct Inside<'a> {
    shape: &'static Shape,
    file: &'static str,
    helpers: &'a [&'static HelperDefinition],
}

impl Inside<'_> {
    fn items(&self, nodes: &'static [Node]) -> Vec<Item> {
        let mut items = Vec::new();
        for node in nodes {
            self.push(node, &mut items);
        }
        items
    }

    fn push(&self, node: &'static Node, items: &mut Vec<Item>) {
        let item = |what: What, line: u32, body: Vec<Item>| Item {
            what,
            body,
            at: format!("{}:{line}", self.file),
        };
        let new = match node {
            Node::Call { callee, line, said } => {
                let callee = &self.shape.callees[*callee];
                let Some((what, body)) = self.call(callee, said, items) else {
                    return;
                };
                item(what, *line, body)
            }
            Node::Branch { head, line, arms } => {
                let arms = arms.iter().map(|(when, body)| {
                    let when = one_line(when);
                    item(What::Arm { when }, *line, self.items(body))
                });
                let head = one_line(head);
                item(What::Branch { head }, *line, arms.collect())
            }
            Node::Loop { head, line, body } => {
                let head = one_line(head);
                item(What::Loop { head }, *line, self.items(body))
            }
            Node::Together {
                head,
                race,
                line,
                branches,
            } => {
                let parts = branches.iter();
                let parts = parts.map(|body| item(What::Part, *line, self.items(body)));
                let (head, race) = (one_line(head), *race);
                item(What::Together { head, race }, *line, parts.collect())
            }
            Node::Block { line, body } => item(What::Block, *line, self.items(body)),
        };
        if shows(&new) {
            items.push(new);
        }
    }

    /// What a call is. A named scope takes the closure that was written before it as its body.
    fn call(
        &self,
        callee: &Callee,
        said: &'static str,
        items: &mut Vec<Item>,
    ) -> Option<(What, Vec<Item>)> {
        let said = (!said.is_empty()).then(|| one_line(said));
        Some(match callee.target {
            Target::Step(step) => {
                let name = step.name.to_owned();
                (What::Step { name, key: said }, Vec::new())
            }
            Target::Workflow(child) => {
                let name = child.name.to_owned();
                (What::Child { name, key: said }, Vec::new())
            }
            Target::Inline(helper) => {
                let same = |it: &&HelperDefinition| {
                    (it.name, it.file, it.line) == (helper.name, helper.file, helper.line)
                };
                let name = helper.name.to_owned();
                if self.helpers.iter().copied().any(|it| same(&it)) {
                    let function = format!("{name} again");
                    return Some((
                        What::Call {
                            function,
                            name: None,
                        },
                        Vec::new(),
                    ));
                }
                let shape = (helper.shape)();
                let helpers = [self.helpers, &[helper]].concat();
                let inside = Inside {
                    shape,
                    file: helper.file,
                    helpers: &helpers,
                };
                (What::Helper { name }, inside.items(shape.body))
            }
            Target::Other => {
                let function = callee.name.rsplit("::").next().unwrap_or(callee.name);
                if !SHOWN.contains(&function) {
                    return None;
                }
                if function == "scope"
                    && let Some(name) = &said
                    && matches!(items.last(), Some(Item { what: What::Loop { head }, .. }) if head.starts_with('|'))
                {
                    let body = items.pop().map_or_else(Vec::new, |item| item.body);
                    return Some((What::Scope { name: name.clone() }, body));
                }
                let function = function.to_owned();
                (
                    What::Call {
                        function,
                        name: said,
                    },
                    Vec::new(),
                )
            }
        })
    }
}

/// Says whether anything happens in an item.
fn shows(item: &Item) -> bool {
    match item.what {
        What::Step { .. } | What::Child { .. } | What::Call { .. } => true,
        _ => item.body.iter().any(shows),
    }
}

/// A text without line breaks.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The types that have an entry, with what they were made from.
#[derive(Default)]
struct Types {
    entries: Vec<(TypeEntry, Tree)>,
}

/// The types around a part of a type: what serde calls them, and what they are called here.
type Around = Vec<(&'static str, String)>;

impl Types {
    fn signature(
        &mut self,
        names: &[&str],
        written: &[&str],
        seen: &[fn() -> Option<Tree>],
        returned: Option<Returned>,
        returns: &str,
    ) -> Signature {
        let arguments = names.iter().enumerate().map(|(at, name)| {
            let written = written.get(at).copied().unwrap_or_default();
            let tree = seen.get(at).and_then(|seen| seen());
            ((*name).to_owned(), self.written(tree, written))
        });
        let arguments = arguments.collect();
        let (ok, error) = match returned {
            Some(Returned { ok, error }) => (Some(ok), error),
            None => (None, None),
        };
        Signature {
            arguments,
            returns: self.written(ok, returns),
            fails: error.map(|tree| self.ty(&tree, &mut Around::new())),
        }
    }

    /// A type that is written in a signature.
    fn written(&mut self, tree: Option<Tree>, written: &str) -> Ty {
        match tree {
            None | Some(Tree::Opaque) => Ty::Opaque(one_line(written)),
            Some(tree) => self.ty(&tree, &mut Around::new()),
        }
    }

    fn ty(&mut self, tree: &Tree, around: &mut Around) -> Ty {
        match tree {
            Tree::Plain(name) => Ty::Plain((*name).to_owned()),
            Tree::Option(inner) => Ty::Option(self.ty(inner, around).into()),
            Tree::List(inner) => Ty::List(self.ty(inner, around).into()),
            Tree::Map(key, value) => {
                let key = self.ty(key, around);
                Ty::Map(key.into(), self.ty(value, around).into())
            }
            Tree::Tuple(parts) => {
                Ty::Tuple(parts.iter().map(|part| self.ty(part, around)).collect())
            }
            Tree::Struct { name, .. } | Tree::Enum { name, .. } => {
                Ty::Named(self.named(name, tree, around))
            }
            Tree::Same(name) => {
                let known = around.iter().rev().find(|(serde, _)| serde == name);
                known.map_or_else(
                    || Ty::Opaque((*name).to_owned()),
                    |(_, here)| Ty::Named(here.clone()),
                )
            }
            Tree::Opaque => Ty::Opaque(String::new()),
        }
    }

    fn named(&mut self, name: &'static str, tree: &Tree, around: &mut Around) -> String {
        let same = |(_, of): &&(TypeEntry, Tree)| of == tree;
        if let Some((known, _)) = self.entries.iter().find(same) {
            return known.name.clone();
        }
        let plain = |c: char| {
            if "<>(),#\"".contains(c) || c.is_whitespace() {
                '_'
            } else {
                c
            }
        };
        let base: String = name.chars().map(plain).collect();
        let taken = |wanted: &str| self.entries.iter().any(|(it, _)| it.name == wanted);
        let numbered = (2..).map(|n| format!("{base}#{n}"));
        let here = std::iter::once(base.clone()).chain(numbered);
        let here = here.into_iter().find(|it| !taken(it)).unwrap_or(base);
        let at = self.entries.len();
        let empty = TypeEntry {
            name: here.clone(),
            parts: Parts::Enum(Vec::new()),
        };
        self.entries.push((empty, tree.clone()));
        around.push((name, here.clone()));
        let parts = match tree {
            Tree::Struct { fields, .. } => Parts::Struct(self.fields(fields, around)),
            Tree::Enum { variants, .. } => {
                let held = |types: &mut Self, content: &Content| match content {
                    Content::Unit => Held::Nothing,
                    Content::Value(tree) => Held::Value(types.ty(tree, around)),
                    Content::Fields(fields) => Held::Fields(types.fields(fields, around)),
                    Content::Unknown => Held::Unknown,
                };
                let mut held = held;
                let variants = variants.iter();
                Parts::Enum(
                    variants
                        .map(|(name, content)| (one_line(name), held(self, content)))
                        .collect(),
                )
            }
            _ => unreachable!("only these have a name"),
        };
        around.pop();
        self.entries[at].0.parts = parts;
        here
    }

    fn fields(&mut self, fields: &Fields, around: &mut Around) -> FieldList {
        let all = fields.all.iter().map(|field| {
            let mut aliases: Vec<_> = field.aliases.iter().map(|it| one_line(it)).collect();
            aliases.sort();
            FieldEntry {
                name: one_line(field.name),
                aliases,
                ty: self.ty(&field.tree, around),
                may_be_missing: field.may_be_missing,
            }
        });
        FieldList {
            all: all.collect(),
            closed: fields.closed,
        }
    }
}
