//! The audit as text: the table of steps, then what `stages` says, then the findings.

use std::fmt;

use super::{Audit, AuditedStep, EffectClass, KeyKept, Seen, Severity};
use crate::duration::short;

/// What stands where there is nothing to say.
const NOTHING: &str = "-";

/// The columns of the table.
const COLUMNS: [&str; 9] = [
    "step",
    "workflows",
    "effect",
    "guard",
    "key",
    "attempts",
    "timeout",
    "key kept",
    "findings",
];

impl fmt::Display for Audit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |severity| self.open().filter(|it| it.severity == severity).count();
        writeln!(
            f,
            "audit of {} and {}: {} and {} to settle",
            count(self.workflows.len(), "workflow"),
            count(self.steps.len(), "step"),
            count(of(Severity::Error), "error"),
            count(of(Severity::Warning), "warning"),
        )?;
        writeln!(f)?;
        self.write_table(f)?;
        writeln!(f)?;
        self.write_stages(f)?;
        writeln!(f)?;
        self.write_checklist(f)?;
        if self.findings.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nfindings")?;
        self.findings
            .iter()
            .try_for_each(|it| writeln!(f, "  {it}"))
    }
}

impl Audit {
    fn write_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = COLUMNS.map(String::from);
        let rows = self.steps.iter().map(|step| self.row(step));
        let rows: Vec<_> = std::iter::once(header).chain(rows).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let widths: [usize; COLUMNS.len()] = std::array::from_fn(|at| width(at).unwrap_or(0));
        for row in &rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(widths) {
                line.push_str("  ");
                line.push_str(cell);
                line.extend(std::iter::repeat_n(' ', width - cell.chars().count()));
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }

    fn row(&self, step: &AuditedStep) -> [String; COLUMNS.len()] {
        let definition = step.definition;
        let found = self.findings.iter();
        let found = found.filter(|it| std::ptr::eq(it.definition, definition));
        let name = match step.seen {
            Seen::InShape => definition.name.to_owned(),
            Seen::CalledOnly => format!("{} (called only)", definition.name),
        };
        let attempts = match step.at_most_once() {
            true => Some(1),
            false => definition.max_attempts.or(self.settings.max_attempts),
        };
        [
            name,
            join(step.workflows()),
            effect_name(step.effect()).to_owned(),
            or(join(step.guards().map(|it| it.to_string())), "nothing"),
            definition.about.key.unwrap_or(NOTHING).to_owned(),
            attempts.map_or_else(|| "engine's".to_owned(), |it| it.to_string()),
            definition.timeout.map_or_else(|| NOTHING.to_owned(), short),
            step.key_kept.to_string(),
            match (join(found.map(|it| it.code)), definition.about.audit) {
                (found, _) if found.is_empty() => NOTHING.to_owned(),
                (found, Some(_)) => format!("accepted: {found}"),
                (found, None) => found,
            },
        ]
    }
}

impl fmt::Display for KeyKept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("engine's"),
            Self::Forever => f.write_str("for ever"),
            Self::For(kept) => f.write_str(&short(*kept)),
        }
    }
}

/// What an effect is called.
pub(crate) fn effect_name(effect: Option<EffectClass>) -> &'static str {
    match effect {
        None => "unclassified",
        Some(EffectClass::Read) => "read",
        Some(EffectClass::Create) => "create",
        Some(EffectClass::Update) => "update",
        Some(EffectClass::Payment) => "payment",
        Some(EffectClass::Message) => "message",
    }
}

/// A list in one line.
pub(super) fn join<T: AsRef<str>>(all: impl Iterator<Item = T>) -> String {
    let mut line = String::new();
    for one in all {
        if !line.is_empty() {
            line.push_str(", ");
        }
        line.push_str(one.as_ref());
    }
    line
}

/// A text, or another one if it is empty.
pub(super) fn or(text: String, otherwise: &str) -> String {
    match text.is_empty() {
        true => otherwise.to_owned(),
        false => text,
    }
}

/// A number of things.
pub(super) fn count(number: usize, thing: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{plural}")
}
