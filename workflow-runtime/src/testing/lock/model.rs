//! What a lock file says, as data: workflows with what they call, steps, types.
//!
//! Owns the data. It is made from code by `gather` and from a file by `text`, and compared by `compare`. Every entry
//! knows where it stands: in the source if it comes from there, in the file otherwise.

use std::fmt;

/// All that a lock file says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) workflows: Vec<WorkflowEntry>,
    pub(super) steps: Vec<StepEntry>,
    pub(super) types: Vec<TypeEntry>,
}

/// One version of a workflow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct WorkflowEntry {
    pub(super) name: String,
    pub(super) version: u32,
    pub(super) tolerant: bool,
    pub(super) signature: Signature,
    pub(super) body: Vec<Item>,
    pub(super) at: String,
}

/// One step.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StepEntry {
    pub(super) name: String,
    pub(super) signature: Signature,
    /// `key`, as written.
    pub(super) key: Option<String>,
    pub(super) announced: Announced,
    /// `fresh_for` and `on_stale`.
    pub(super) fresh: Option<String>,
    pub(super) undone_by: Option<String>,
    pub(super) at: String,
}

/// What is on record before a step's body starts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Announced {
    #[default]
    No,
    Intent,
    AtMostOnce,
}

/// What goes in and comes out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Signature {
    pub(super) arguments: Vec<(String, Ty)>,
    pub(super) returns: Ty,
    pub(super) fails: Option<Ty>,
}

/// A type, as a part of others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ty {
    Plain(String),
    Option(Box<Ty>),
    List(Box<Ty>),
    Map(Box<Ty>, Box<Ty>),
    Tuple(Vec<Ty>),
    /// It has an entry of its own.
    Named(String),
    /// It cannot be looked into: the type as written, if that is known.
    Opaque(String),
}

impl Default for Ty {
    fn default() -> Self {
        Self::Plain("unit".into())
    }
}

/// A type that has a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TypeEntry {
    pub(super) name: String,
    pub(super) parts: Parts,
}

/// What a type with a name is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Parts {
    Struct(FieldList),
    Enum(Vec<(String, Held)>),
}

/// What a variant holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Held {
    Nothing,
    Value(Ty),
    Fields(FieldList),
    Unknown,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FieldList {
    pub(super) all: Vec<FieldEntry>,
    /// Other fields are refused.
    pub(super) closed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FieldEntry {
    pub(super) name: String,
    pub(super) aliases: Vec<String>,
    pub(super) ty: Ty,
    pub(super) may_be_missing: bool,
}

/// One thing that happens in a workflow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) what: What,
    pub(super) body: Vec<Item>,
    pub(super) at: String,
}

/// What happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Step {
        name: String,
        key: Option<String>,
    },
    Child {
        name: String,
        key: Option<String>,
    },
    /// A function of this crate, with the name that it is given.
    Call {
        function: String,
        name: Option<String>,
    },
    Branch {
        head: String,
    },
    Arm {
        when: String,
    },
    Loop {
        head: String,
    },
    Together {
        head: String,
        race: bool,
    },
    Part,
    Block,
    Scope {
        name: String,
    },
    Helper {
        name: String,
    },
}

/// Between the name of a call and what names it.
pub(super) const KEYED: &str = " by ";

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keyed = |f: &mut fmt::Formatter<'_>, kind: &str, name: &str, key: &Option<String>| {
            write!(f, "{kind} {name}")?;
            match key {
                Some(key) => write!(f, "{KEYED}{key}"),
                None => Ok(()),
            }
        };
        match self {
            Self::Step { name, key } => keyed(f, "step", name, key),
            Self::Child { name, key } => keyed(f, "child", name, key),
            Self::Call { function, name } => match name {
                Some(name) => write!(f, "call {function} {name}"),
                None => write!(f, "call {function}"),
            },
            Self::Branch { head } => write!(f, "if {head}"),
            Self::Arm { when } => write!(f, "when {when}"),
            Self::Loop { head } => write!(f, "loop {head}"),
            Self::Together { head, race: true } => write!(f, "race {head}"),
            Self::Together { head, race: false } => write!(f, "together {head}"),
            Self::Part => f.write_str("part"),
            Self::Block => f.write_str("async"),
            Self::Scope { name } => write!(f, "scope {name}"),
            Self::Helper { name } => write!(f, "helper {name}"),
        }
    }
}

impl What {
    pub(super) fn parse(line: &str) -> Option<Self> {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let text = || rest.to_owned();
        let keyed = || match rest.split_once(KEYED) {
            Some((name, key)) => (name.to_owned(), Some(key.to_owned())),
            None => (text(), None),
        };
        Some(match kind {
            "part" if rest.is_empty() => Self::Part,
            "async" if rest.is_empty() => Self::Block,
            _ if rest.is_empty() => return None,
            "step" => {
                let (name, key) = keyed();
                Self::Step { name, key }
            }
            "child" => {
                let (name, key) = keyed();
                Self::Child { name, key }
            }
            "call" => {
                let (function, name) = match rest.split_once(' ') {
                    Some((function, name)) => (function.to_owned(), Some(name.to_owned())),
                    None => (text(), None),
                };
                Self::Call { function, name }
            }
            "if" => Self::Branch { head: text() },
            "when" => Self::Arm { when: text() },
            "loop" => Self::Loop { head: text() },
            "race" | "together" => Self::Together {
                head: text(),
                race: kind == "race",
            },
            "scope" => Self::Scope { name: text() },
            "helper" => Self::Helper { name: text() },
            _ => return None,
        })
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(name) | Self::Named(name) => f.write_str(name),
            Self::Option(inner) => write!(f, "option<{inner}>"),
            Self::List(inner) => write!(f, "list<{inner}>"),
            Self::Map(key, value) => write!(f, "map<{key}, {value}>"),
            Self::Tuple(parts) => {
                let parts: Vec<_> = parts.iter().map(ToString::to_string).collect();
                write!(f, "({})", parts.join(", "))
            }
            Self::Opaque(written) if written.is_empty() => f.write_str("opaque"),
            Self::Opaque(written) => write!(f, "opaque {written:?}"),
        }
    }
}

impl Item {
    /// Says whether two items are the same, wherever they stand.
    pub(super) fn same(&self, other: &Self) -> bool {
        self.what == other.what && same(&self.body, &other.body)
    }
}

/// Says whether the same happens.
pub(super) fn same(one: &[Item], other: &[Item]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| one.same(other))
}
