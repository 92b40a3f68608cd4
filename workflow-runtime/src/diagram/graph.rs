//! From a shape to boxes and arrows.

use std::fmt::Write as _;

use crate::audit::effect_name;
use crate::call::{Announced, StepDefinition};
use crate::duration::short;
use crate::shape::{HelperDefinition, Node, Shape, Target};

/// Functions of this crate that a run waits in, or that say what becomes of it: shown although they are no steps.
const WAITS: &[&str] = &[
    "abort",
    "abort_keep",
    "checkpoint",
    "hook",
    "publish",
    "sleep",
    "sleep_until",
    "wait_for",
];

/// Boxes and arrows.
#[derive(Debug, Clone, Default)]
pub(super) struct Graph {
    pub(super) boxes: Vec<Box>,
    pub(super) arrows: Vec<Arrow>,
}

/// One box. Its number is its place in the list.
#[derive(Debug, Clone)]
pub(super) struct Box {
    pub(super) kind: Kind,
    /// Its lines.
    pub(super) text: Vec<String>,
    /// The call that it stands for.
    pub(super) spot: Option<Spot>,
    /// What a run made of it.
    pub(super) state: Option<State>,
}

/// A call in the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spot {
    pub(super) file: &'static str,
    pub(super) line: u32,
    /// The step, the child workflow or the function that is called.
    pub(super) name: &'static str,
    /// What the call is named by, as written.
    pub(super) said: &'static str,
}

/// What a box stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The beginning or the end.
    Terminal,
    /// A step.
    Step,
    /// A child workflow.
    Child,
    /// A wait, or another call that matters.
    Wait,
    /// A branch.
    Choice,
    /// A loop.
    Loop,
    /// The beginning or the end of what goes on at the same time.
    Bar,
}

/// What a run made of a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It has its outcome.
    Done,
    /// Its outcome is a failure.
    Failed,
    /// It was begun and has no outcome.
    Running,
    /// What comes before it is done; nothing is on record of it.
    Next,
    /// The run has not got there.
    NotReached,
}

/// An arrow between two boxes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Arrow {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) label: String,
}

/// Where the next box is reached from: a box, and when that way is taken.
type Ends = Vec<(usize, String)>;

/// What is being drawn: a shape, and the helpers around it.
struct Inside<'a> {
    shape: &'static Shape,
    /// Where it is written.
    file: &'static str,
    helpers: &'a [&'static HelperDefinition],
}

impl Graph {
    pub(super) fn of(shape: &'static Shape, file: &'static str) -> Self {
        let mut graph = Self::default();
        let start = graph.add(Kind::Terminal, vec!["start".into()]);
        let inside = Inside {
            shape,
            file,
            helpers: &[],
        };
        let ends = graph.sequence(&inside, shape.body, vec![(start, String::new())]);
        graph.reach(Kind::Terminal, vec!["end".into()], ends);
        graph
    }

    fn add(&mut self, kind: Kind, text: Vec<String>) -> usize {
        self.boxes.push(Box {
            kind,
            text,
            spot: None,
            state: None,
        });
        self.boxes.len() - 1
    }

    /// Adds a box that is reached from `ends`.
    fn reach(&mut self, kind: Kind, text: Vec<String>, ends: Ends) -> usize {
        let to = self.add(kind, text);
        self.connect(ends, to);
        to
    }

    fn connect(&mut self, ends: Ends, to: usize) {
        for (from, label) in ends {
            let arrow = Arrow { from, to, label };
            if !self.arrows.contains(&arrow) {
                self.arrows.push(arrow);
            }
        }
    }

    fn sequence(&mut self, inside: &Inside<'_>, nodes: &'static [Node], mut ends: Ends) -> Ends {
        for node in nodes {
            if shows(inside, node) {
                ends = self.node(inside, node, ends);
            }
        }
        ends
    }

    fn node(&mut self, inside: &Inside<'_>, node: &'static Node, ends: Ends) -> Ends {
        match node {
            Node::Call { callee, line, said } => {
                let ends = self.call(inside, *callee, ends);
                let name = match inside.shape.callees[*callee].target {
                    Target::Step(step) => step.name,
                    Target::Workflow(child) => child.name,
                    Target::Inline(_) => return ends,
                    Target::Other => last(inside.shape.callees[*callee].name),
                };
                let (file, line) = (inside.file, *line);
                if let Some(last) = self.boxes.last_mut() {
                    last.spot = Some(Spot {
                        file,
                        line,
                        name,
                        said,
                    });
                }
                ends
            }
            Node::Block { body, .. } => self.sequence(inside, body, ends),
            Node::Branch { head, arms, .. } => {
                let choice = self.reach(Kind::Choice, vec![(*head).into()], ends);
                let mut out = Ends::new();
                for (when, body) in *arms {
                    let arm = self.sequence(inside, body, vec![(choice, (*when).into())]);
                    // The block of a `let … else` leaves: nothing follows it here.
                    if *when != "else" {
                        out.extend(arm);
                    }
                }
                match arms {
                    [("yes", _)] => out.push((choice, "no".into())),
                    [("else", _)] => out.push((choice, String::new())),
                    _ => {}
                }
                out
            }
            Node::Loop { head, body, .. } => {
                let again = self.reach(Kind::Loop, vec![(*head).into()], ends);
                let back = self.sequence(inside, body, vec![(again, "each".into())]);
                self.connect(back, again);
                vec![(again, "then".into())]
            }
            Node::Together {
                head,
                race,
                branches,
                ..
            } => {
                let fork = self.reach(Kind::Bar, vec![(*head).into()], ends);
                let mut all = Ends::new();
                for branch in *branches {
                    all.extend(self.sequence(inside, branch, vec![(fork, String::new())]));
                }
                let text = if *race { "first" } else { "all" };
                vec![(self.reach(Kind::Bar, vec![text.into()], all), String::new())]
            }
        }
    }

    fn call(&mut self, inside: &Inside<'_>, callee: usize, ends: Ends) -> Ends {
        let callee = &inside.shape.callees[callee];
        let (kind, text) = match callee.target {
            Target::Step(step) => (Kind::Step, step_text(step)),
            Target::Workflow(child) => (Kind::Child, vec![child.name.into()]),
            Target::Other => (Kind::Wait, vec![last(callee.name).into()]),
            Target::Inline(helper) => {
                if inside.helpers.iter().any(|it| same(it, helper)) {
                    let again = vec![format!("{} again", helper.name)];
                    return vec![(self.reach(Kind::Child, again, ends), String::new())];
                }
                let shape = (helper.shape)();
                let helpers = [inside.helpers, &[helper]].concat();
                let inside = Inside {
                    shape,
                    file: helper.file,
                    helpers: &helpers,
                };
                return self.sequence(&inside, shape.body, ends);
            }
        };
        vec![(self.reach(kind, text, ends), String::new())]
    }
}

/// Says whether a node leads to anything that is shown.
fn shows(inside: &Inside<'_>, node: &Node) -> bool {
    let any = |nodes: &[Node]| nodes.iter().any(|node| shows(inside, node));
    match node {
        Node::Call { callee, .. } => {
            let callee = &inside.shape.callees[*callee];
            !matches!(callee.target, Target::Other) || WAITS.contains(&last(callee.name))
        }
        Node::Branch { arms, .. } => arms.iter().any(|(_, body)| any(body)),
        Node::Loop { body, .. } | Node::Block { body, .. } => any(body),
        Node::Together { branches, .. } => branches.iter().any(|body| any(body)),
    }
}

/// Says whether two descriptions are of the same helper: a constant may have several addresses.
fn same(one: &HelperDefinition, other: &HelperDefinition) -> bool {
    (one.name, one.file, one.line) == (other.name, other.file, other.line)
}

/// The name at the end of a path.
fn last(path: &'static str) -> &'static str {
    path.rsplit("::").next().unwrap_or(path)
}

/// The lines of a step's box: its name, then its options.
fn step_text(step: &StepDefinition) -> Vec<String> {
    let mut options = String::new();
    let mut say = |text: &str| {
        let apart = if options.is_empty() { "" } else { ", " };
        let _ = write!(options, "{apart}{text}");
    };
    if let Some(effect) = step.effect {
        say(effect_name(Some(effect)));
    }
    match (step.announced, step.max_attempts) {
        (Announced::AtMostOnce, _) => say("at most once"),
        (_, Some(attempts)) => say(&format!("{attempts} attempts")),
        _ => {}
    }
    if let Some(timeout) = step.timeout {
        say(&format!("timeout {}", short(timeout)));
    }
    if let Some((undo, _)) = step.about.undone_by {
        say(&format!("undo {undo}"));
    }
    let mut lines = vec![step.name.to_owned()];
    if !options.is_empty() {
        lines.push(options);
    }
    lines
}
