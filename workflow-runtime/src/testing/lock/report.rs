//! What is said about changes: to the person who made them.
//!
//! Owns the text. Every change names the thing, the rule and the way out.

use std::fmt::{self, Write as _};

/// What a change means for runs under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Class {
    /// They go on.
    Safe,
    /// They are parked, unless the change stands behind [`patched`](crate::patched).
    NeedsPatch,
    /// They are parked, or do something again; a patch alone does not help.
    Breaking,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Safe => "safe",
            Self::NeedsPatch => "needs a patch",
            Self::Breaking => "breaking",
        })
    }
}

/// One change of code, judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub(super) class: Class,
    /// The steps and workflows that it is about.
    subjects: Vec<String>,
    what: String,
    why: String,
    fix: String,
    at: String,
    was_at: String,
}

impl Change {
    pub(super) fn new(class: Class, subject: &str, what: &str, at: &str) -> Self {
        Self {
            class,
            subjects: vec![subject.to_owned()],
            what: what.to_owned(),
            why: String::new(),
            fix: String::new(),
            at: at.to_owned(),
            was_at: String::new(),
        }
    }

    pub(super) fn was(mut self, at: &str) -> Self {
        self.was_at = at.to_owned();
        self
    }

    pub(super) fn because(mut self, why: &str) -> Self {
        self.why = why.to_owned();
        self
    }

    pub(super) fn mend(mut self, fix: String) -> Self {
        self.fix = fix;
        self
    }

    /// Says whether it is the same change of a type, seen from another place. Changes of types name the type.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        let of_a_type = self.what.starts_with("field `") || self.what.starts_with("variant `");
        of_a_type && (self.class, &self.what, &self.why) == (other.class, &other.what, &other.why)
    }

    pub(super) fn also(&mut self, other: Self) {
        for subject in other.subjects {
            if !self.subjects.contains(&subject) {
                self.subjects.push(subject);
            }
        }
    }

    /// Returns what it means for runs under way.
    pub fn class(&self) -> Class {
        self.class
    }

    /// Returns what has changed.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Returns why it means that.
    pub fn why(&self) -> &str {
        &self.why
    }

    /// Returns the way out; empty for safe changes.
    pub fn fix(&self) -> &str {
        &self.fix
    }

    /// Returns where it stands in the code, as `file:line`.
    pub fn place(&self) -> &str {
        &self.at
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {}: {}",
            self.class,
            self.subjects.join(", "),
            self.what
        )?;
        let was = match &*self.was_at {
            "" => String::new(),
            was if *was == *self.at => String::new(),
            was => format!(" (was {was})"),
        };
        write!(f, "  at {}{was}", self.at)?;
        if !self.why.is_empty() {
            write!(f, "\n  because {}", self.why)?;
        }
        if !self.fix.is_empty() {
            write!(f, "\n  to mend it: {}", self.fix)?;
        }
        Ok(())
    }
}

/// What has changed since a lock file was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    pub(super) changes: Vec<Change>,
    /// The file is not what would be written now.
    pub(super) outdated: bool,
}

impl Changed {
    /// Returns the changes, the gravest first.
    pub fn changes(&self) -> impl Iterator<Item = &Change> {
        self.changes.iter()
    }

    /// Returns what the gravest change means; `None` if nothing has changed that runs rely on.
    pub fn class(&self) -> Option<Class> {
        self.changes.iter().map(|change| change.class).max()
    }

    /// Says whether the file is what would be written now.
    pub fn is_current(&self) -> bool {
        !self.outdated
    }

    /// How many changes there are of each kind, in words.
    fn counted(&self) -> String {
        let mut text = String::new();
        for class in [Class::Breaking, Class::NeedsPatch, Class::Safe] {
            let count = self.changes.iter().filter(|it| it.class == class).count();
            if count > 0 {
                let apart = if text.is_empty() { "" } else { ", " };
                let class = match (class, count) {
                    (Class::NeedsPatch, 2..) => "need a patch".to_owned(),
                    (class, _) => class.to_string(),
                };
                let _ = write!(text, "{apart}{count} {class}");
            }
        }
        match text.is_empty() {
            true => "nothing that runs rely on".to_owned(),
            false => text,
        }
    }
}

impl fmt::Display for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "changed since the lock file was written: {}",
            self.counted()
        )?;
        for change in &self.changes {
            write!(f, "\n\n{change}")?;
        }
        Ok(())
    }
}
