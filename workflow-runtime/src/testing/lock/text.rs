//! A lock file as text: one thing a line, two spaces a level, sorted, so that a difference reads well.
//!
//! Owns how it is written; `reader` reads it.

use std::fmt::Write as _;

use super::model::{Announced, FieldList, Held, Item, Manifest, Parts, Signature};

/// The first lines of every file.
const HEAD: &str = "\
# What runs under way rely on: the workflows, their steps and types, as they were last accepted.
# Made by workflow_runtime::testing::Lock. To accept the code as it is: WORKFLOWS_LOCK=update cargo test
format 1
";

/// Writes a manifest.
pub(super) fn write(manifest: &Manifest) -> String {
    let mut out = Out(String::from(HEAD));
    for workflow in &manifest.workflows {
        out.blank();
        out.line(0, &format!("workflow {}", workflow.name));
        out.line(1, &format!("version {}", workflow.version));
        if workflow.tolerant {
            out.line(1, "changes tolerant");
        }
        out.signature(&workflow.signature);
        out.line(1, "body");
        out.items(2, &workflow.body);
    }
    for step in &manifest.steps {
        out.blank();
        out.line(0, &format!("step {}", step.name));
        out.signature(&step.signature);
        match step.announced {
            Announced::No => {}
            Announced::Intent => out.line(1, "intent"),
            Announced::AtMostOnce => out.line(1, "at most once"),
        }
        let said = [
            ("key", &step.key),
            ("fresh for", &step.fresh),
            ("undone by", &step.undone_by),
        ];
        for (what, text) in said {
            if let Some(text) = text {
                out.line(1, &format!("{what} {text}"));
            }
        }
    }
    for entry in &manifest.types {
        out.blank();
        match &entry.parts {
            Parts::Struct(fields) => {
                out.line(0, &format!("struct {}", entry.name));
                out.fields(1, fields);
            }
            Parts::Enum(variants) => {
                out.line(0, &format!("enum {}", entry.name));
                for (name, held) in variants {
                    out.variant(name, held);
                }
            }
        }
    }
    out.0
}

struct Out(String);

impl Out {
    fn blank(&mut self) {
        self.0.push('\n');
    }

    fn line(&mut self, level: usize, text: &str) {
        let _ = writeln!(self.0, "{}{text}", "  ".repeat(level));
    }

    fn signature(&mut self, signature: &Signature) {
        for (name, ty) in &signature.arguments {
            self.line(1, &format!("argument {name}: {ty}"));
        }
        self.line(1, &format!("returns {}", signature.returns));
        if let Some(error) = &signature.fails {
            self.line(1, &format!("fails with {error}"));
        }
    }

    fn items(&mut self, level: usize, items: &[Item]) {
        for item in items {
            self.line(level, &item.what.to_string());
            self.items(level + 1, &item.body);
        }
    }

    fn variant(&mut self, name: &str, held: &Held) {
        match held {
            Held::Nothing => self.line(1, &format!("variant {name}")),
            Held::Unknown => self.line(1, &format!("variant {name}: unknown")),
            Held::Value(ty) => self.line(1, &format!("variant {name}: {ty}")),
            Held::Fields(fields) => {
                self.line(1, &format!("variant {name}: fields"));
                self.fields(2, fields);
            }
        }
    }

    fn fields(&mut self, level: usize, fields: &FieldList) {
        for field in &fields.all {
            let mut line = format!("field {}: {}", field.name, field.ty);
            if field.may_be_missing {
                line.push_str("; may be missing");
            }
            if !field.aliases.is_empty() {
                let _ = write!(line, "; also {}", field.aliases.join(", "));
            }
            self.line(level, &line);
        }
        if fields.closed {
            self.line(level, "no other fields");
        }
    }
}
