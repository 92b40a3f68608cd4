//! What the macros know of functions without running them: options as written, and which steps a
//! workflow calls in which order, under which branches.
//!
//! Owns the data types that expanded code fills in as constants, and the walk from a workflow to the
//! steps it can reach. It is read by those who look at code (the audit), never while a run goes on.
//!
//! A shape says what the source says. What it cannot see: calls through variables and function pointers,
//! steps that are defined inside a function or have no type of their own (`marker = false`), and what
//! un-annotated helpers call.

use crate::call::{StepDefinition, WorkflowDefinition};
use crate::types::{Returned, Tree};

/// A function as written, and what it is. That is behind a function, because two steps may name each other.
pub type Named = (&'static str, fn() -> Target);

/// What a step says about itself beyond what running it needs.
#[derive(Debug)]
pub struct StepAbout {
    /// The types of the arguments, as written.
    pub types: &'static [&'static str],
    /// The return type, as written.
    pub returns: &'static str,
    /// The types of its resources, as written.
    pub resources: &'static [&'static str],
    /// The body names its step id, or takes all that the step knows about itself.
    pub uses_step_id: bool,
    /// The body names `already_done` or `or_already_done`.
    pub already_done: bool,
    /// `key`, as written.
    pub key: Option<&'static str>,
    /// `retry_if`, as written.
    pub retry_if: Option<&'static str>,
    /// `blocking`.
    pub blocking: bool,
    /// `undo`, as written, and what that is.
    pub undone_by: Option<Named>,
    /// `audit`: why what is found about it is right as it is.
    pub audit: Option<&'static str>,
    /// What serde sees of the arguments' types.
    pub seen: &'static [fn() -> Option<Tree>],
    /// What serde sees of the return type.
    pub returned: fn() -> Option<Returned>,
}

impl StepAbout {
    /// What a step says that has no options.
    pub const fn new(types: &'static [&'static str], returns: &'static str) -> Self {
        Self {
            types,
            returns,
            resources: &[],
            uses_step_id: false,
            already_done: false,
            key: None,
            retry_if: None,
            blocking: false,
            undone_by: None,
            audit: None,
            seen: &[],
            returned: || None,
        }
    }
}

/// What a workflow says about itself beyond what running it needs.
#[derive(Debug)]
pub struct WorkflowAbout {
    /// The types of the arguments, as written.
    pub types: &'static [&'static str],
    /// The return type, as written.
    pub returns: &'static str,
    /// What serde sees of the arguments' types.
    pub seen: &'static [fn() -> Option<Tree>],
    /// What serde sees of the return type.
    pub returned: fn() -> Option<Returned>,
    /// What its body does.
    pub shape: fn() -> &'static Shape,
}

/// What the macro knows of an inline helper.
#[derive(Debug)]
pub struct HelperDefinition {
    /// Its name.
    pub name: &'static str,
    /// What its body does.
    pub shape: fn() -> &'static Shape,
    /// Where it is defined.
    pub file: &'static str,
    /// Where it is defined.
    pub line: u32,
}

/// What a called function is.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    /// A step.
    Step(&'static StepDefinition),
    /// A workflow: the call is a child run.
    Workflow(&'static WorkflowDefinition),
    /// A helper in the same run.
    Inline(&'static HelperDefinition),
    /// None of these, as far as the macros can see.
    Other,
}

impl Target {
    /// The step that it is.
    ///
    /// # Panics
    ///
    /// If it is none; expanded code asks where it is one, when it is compiled.
    pub const fn step(self) -> &'static StepDefinition {
        match self {
            Self::Step(definition) => definition,
            _ => panic!("it is a step"),
        }
    }
}

/// What a body does.
#[derive(Debug)]
pub struct Shape {
    /// The functions that it calls, each once.
    pub callees: &'static [Callee],
    /// What happens, in the order of the source.
    pub body: &'static [Node],
}

/// A function that is called.
#[derive(Debug)]
pub struct Callee {
    /// Its name, as written.
    pub name: &'static str,
    /// What it is.
    pub target: Target,
}

/// One thing that happens.
#[derive(Debug)]
pub enum Node {
    /// A function is called.
    Call {
        /// Which one, as an index into the shape's callees.
        callee: usize,
        /// Where.
        line: u32,
        /// What names this call: its key, or the name that a function of this crate is given.
        said: &'static str,
    },
    /// One of several ways is taken.
    Branch {
        /// What decides, as written.
        head: &'static str,
        /// Where.
        line: u32,
        /// The ways: when each is taken, and what happens then.
        arms: &'static [(&'static str, &'static [Node])],
    },
    /// It happens any number of times: a loop, or a closure.
    Loop {
        /// The loop's head, or the closure's parameters.
        head: &'static str,
        /// Where.
        line: u32,
        /// What happens each time.
        body: &'static [Node],
    },
    /// Several things go on at the same time.
    Together {
        /// What drives them, as written.
        head: &'static str,
        /// Whether the first that is ready is enough.
        race: bool,
        /// Where.
        line: u32,
        /// What goes on.
        branches: &'static [&'static [Node]],
    },
    /// An `async` block: a scope of its own.
    Block {
        /// Where.
        line: u32,
        /// What happens in it.
        body: &'static [Node],
    },
}

/// Calls `found` for every step and child workflow that a body can reach, inline helpers and steps that
/// undo others included, each once.
pub(crate) fn reachable(shape: &'static Shape, found: &mut dyn FnMut(Target)) {
    let mut seen = Vec::new();
    walk(shape, &mut seen, found);
}

/// What was met already, by where it is defined.
type Seen = Vec<(&'static str, u32, &'static str)>;

fn walk(shape: &'static Shape, seen: &mut Seen, found: &mut dyn FnMut(Target)) {
    for callee in shape.callees {
        meet(callee.target, seen, found);
    }
}

fn meet(target: Target, seen: &mut Seen, found: &mut dyn FnMut(Target)) {
    let place = match target {
        Target::Step(step) => (step.file, step.line, step.name),
        Target::Workflow(workflow) => (workflow.file, workflow.line, workflow.name),
        Target::Inline(helper) => (helper.file, helper.line, helper.name),
        Target::Other => return,
    };
    if seen.contains(&place) {
        return;
    }
    seen.push(place);
    match target {
        Target::Step(step) => {
            found(target);
            if let Some((_, undo)) = step.about.undone_by {
                meet(undo(), seen, found);
            }
        }
        Target::Workflow(_) => found(target),
        Target::Inline(helper) => walk((helper.shape)(), seen, found),
        Target::Other => {}
    }
}
