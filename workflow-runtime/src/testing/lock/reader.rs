//! A lock file, read. What cannot be read is refused with its line.

use super::model::{
    Announced, FieldEntry, FieldList, Held, Item, Manifest, Parts, Signature, StepEntry, Ty,
    TypeEntry, What, WorkflowEntry,
};

/// Types that have no entry of their own.
const PLAIN: &[&str] = &[
    "bool",
    "bytes",
    "char",
    "error",
    "f32",
    "f64",
    "i128",
    "i16",
    "i32",
    "i64",
    "i8",
    "string",
    "u128",
    "u16",
    "u32",
    "u64",
    "u8",
    "unit",
    "identifier",
];

/// Says why a file cannot be read: its line, and what is wrong there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unreadable {
    pub(super) line: usize,
    pub(super) problem: String,
}

/// Reads a manifest; `file` is what its lines are called by.
pub(super) fn read(text: &str, file: &str) -> Result<Manifest, Unreadable> {
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let content = line.trim_start_matches(' ');
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        let spaces = line.len() - content.len();
        let wrong = |problem: &str| Unreadable {
            line: at + 1,
            problem: problem.to_owned(),
        };
        if content.starts_with(['<', '=', '>']) {
            return Err(wrong("a merge was not finished"));
        }
        if spaces % 2 == 1 {
            return Err(wrong("a level is two spaces"));
        }
        lines.push(Line {
            number: at + 1,
            level: spaces / 2,
            text: content.trim_end(),
        });
    }
    let Some((first, rest)) = lines.split_first() else {
        return Err(Unreadable {
            line: 1,
            problem: "the file is empty".into(),
        });
    };
    if first.text != "format 1" {
        return Err(
            first.wrong("a lock file begins with `format 1`: this one is of another release")
        );
    }
    let mut manifest = Manifest::default();
    for (head, body) in groups(rest, 0)? {
        let (kind, name) = head.text.split_once(' ').unwrap_or((head.text, ""));
        let name = name.to_owned();
        match kind {
            _ if name.is_empty() => return Err(head.wrong("a name is missing")),
            "workflow" => manifest.workflows.push(workflow(name, head, body, file)?),
            "step" => manifest.steps.push(step(name, head, body, file)?),
            "struct" => {
                let parts = Parts::Struct(fields(body, 1)?);
                manifest.types.push(TypeEntry { name, parts });
            }
            "enum" => {
                let parts = Parts::Enum(variants(body)?);
                manifest.types.push(TypeEntry { name, parts });
            }
            _ => return Err(head.wrong("it is neither a workflow, a step nor a type")),
        }
    }
    Ok(manifest)
}

/// A line that says something.
#[derive(Clone, Copy)]
struct Line<'a> {
    number: usize,
    level: usize,
    text: &'a str,
}

impl Line<'_> {
    fn wrong(&self, problem: &str) -> Unreadable {
        Unreadable {
            line: self.number,
            problem: problem.to_owned(),
        }
    }
}

type Group<'a, 'b> = (Line<'a>, &'b [Line<'a>]);

/// Lines of one level, each with those below it.
fn groups<'a, 'b>(
    mut lines: &'b [Line<'a>],
    level: usize,
) -> Result<Vec<Group<'a, 'b>>, Unreadable> {
    let mut all = Vec::new();
    while let Some((head, rest)) = lines.split_first() {
        if head.level != level {
            return Err(head.wrong("it stands at the wrong level"));
        }
        let end = rest.iter().position(|it| it.level <= level);
        let (body, after) = rest.split_at(end.unwrap_or(rest.len()));
        all.push((*head, body));
        lines = after;
    }
    Ok(all)
}

/// Takes a line of a signature; says whether it was one.
fn of_signature(line: &Line<'_>, signature: &mut Signature) -> Result<bool, Unreadable> {
    if let Some(argument) = line.text.strip_prefix("argument ") {
        let (name, written) = named(line, argument)?;
        signature.arguments.push((name, ty(line, written)?));
    } else if let Some(written) = line.text.strip_prefix("returns ") {
        signature.returns = ty(line, written)?;
    } else if let Some(written) = line.text.strip_prefix("fails with ") {
        signature.fails = Some(ty(line, written)?);
    } else {
        return Ok(false);
    }
    Ok(true)
}

fn workflow(
    name: String,
    head: Line<'_>,
    body: &[Line<'_>],
    file: &str,
) -> Result<WorkflowEntry, Unreadable> {
    let mut entry = WorkflowEntry {
        name,
        at: format!("{file}:{}", head.number),
        ..WorkflowEntry::default()
    };
    for (line, below) in groups(body, 1)? {
        if of_signature(&line, &mut entry.signature)? {
            continue;
        }
        match line.text {
            "changes tolerant" => entry.tolerant = true,
            "body" => entry.body = items(below, 2, file)?,
            text => {
                let version = text.strip_prefix("version ");
                entry.version = version
                    .and_then(|it| it.parse().ok())
                    .ok_or_else(|| line.wrong("a workflow says no such thing"))?;
            }
        }
    }
    match entry.version {
        0 => Err(head.wrong("its version is missing")),
        _ => Ok(entry),
    }
}

fn step(
    name: String,
    head: Line<'_>,
    body: &[Line<'_>],
    file: &str,
) -> Result<StepEntry, Unreadable> {
    let mut entry = StepEntry {
        name,
        at: format!("{file}:{}", head.number),
        ..StepEntry::default()
    };
    for (line, _) in groups(body, 1)? {
        let said = |what: &str| line.text.strip_prefix(what).map(str::to_owned);
        if of_signature(&line, &mut entry.signature)? {
            continue;
        }
        match line.text {
            "intent" => entry.announced = Announced::Intent,
            "at most once" => entry.announced = Announced::AtMostOnce,
            _ if said("key ").is_some() => entry.key = said("key "),
            _ if said("fresh for ").is_some() => entry.fresh = said("fresh for "),
            _ if said("undone by ").is_some() => entry.undone_by = said("undone by "),
            _ => return Err(line.wrong("a step says no such thing")),
        }
    }
    Ok(entry)
}

fn items(lines: &[Line<'_>], level: usize, file: &str) -> Result<Vec<Item>, Unreadable> {
    let item = |(line, below): Group<'_, '_>| {
        Ok(Item {
            what: What::parse(line.text)
                .ok_or_else(|| line.wrong("a workflow does no such thing"))?,
            body: items(below, level + 1, file)?,
            at: format!("{file}:{}", line.number),
        })
    };
    groups(lines, level)?.into_iter().map(item).collect()
}

fn variants(lines: &[Line<'_>]) -> Result<Vec<(String, Held)>, Unreadable> {
    let variant = |(line, below): Group<'_, '_>| {
        let said = line.text.strip_prefix("variant ");
        let said = said.ok_or_else(|| line.wrong("an enum has variants only"))?;
        Ok(match said.split_once(": ") {
            None => (said.to_owned(), Held::Nothing),
            Some((name, "unknown")) => (name.to_owned(), Held::Unknown),
            Some((name, "fields")) => (name.to_owned(), Held::Fields(fields(below, 2)?)),
            Some((name, written)) => (name.to_owned(), Held::Value(ty(&line, written)?)),
        })
    };
    groups(lines, 1)?.into_iter().map(variant).collect()
}

fn fields(lines: &[Line<'_>], level: usize) -> Result<FieldList, Unreadable> {
    let mut list = FieldList::default();
    for (line, _) in groups(lines, level)? {
        if line.text == "no other fields" {
            list.closed = true;
            continue;
        }
        let said = line.text.strip_prefix("field ");
        let said = said.ok_or_else(|| line.wrong("a struct has fields only"))?;
        let mut parts = said.split("; ");
        let (name, written) = named(&line, parts.next().unwrap_or_default())?;
        let mut field = FieldEntry {
            name,
            ty: ty(&line, written)?,
            aliases: Vec::new(),
            may_be_missing: false,
        };
        for part in parts {
            match part.strip_prefix("also ") {
                Some(also) => field.aliases = also.split(", ").map(str::to_owned).collect(),
                None if part == "may be missing" => field.may_be_missing = true,
                None => return Err(line.wrong("a field says no such thing")),
            }
        }
        list.all.push(field);
    }
    Ok(list)
}

fn named<'a>(line: &Line<'_>, text: &'a str) -> Result<(String, &'a str), Unreadable> {
    let (name, rest) = text
        .split_once(": ")
        .ok_or_else(|| line.wrong("a type is missing"))?;
    Ok((name.to_owned(), rest))
}

fn ty(line: &Line<'_>, written: &str) -> Result<Ty, Unreadable> {
    let mut rest = written;
    match one_type(&mut rest) {
        Some(ty) if rest.is_empty() => Ok(ty),
        _ => Err(line.wrong("the type cannot be read")),
    }
}

fn one_type(rest: &mut &str) -> Option<Ty> {
    fn eat(rest: &mut &str, text: &str) -> Option<()> {
        *rest = rest.strip_prefix(text)?;
        Some(())
    }
    if eat(rest, "(").is_some() {
        let mut parts = Vec::new();
        while eat(rest, ")").is_none() {
            if !parts.is_empty() {
                eat(rest, ", ")?;
            }
            parts.push(one_type(rest)?);
        }
        return Some(Ty::Tuple(parts));
    }
    let end = rest
        .find(['<', '>', '(', ')', ',', ' '])
        .unwrap_or(rest.len());
    let (name, after) = rest.split_at(end);
    *rest = after;
    if name.is_empty() {
        return None;
    }
    if name == "opaque" {
        return Some(Ty::Opaque(match eat(rest, " ") {
            None => String::new(),
            Some(()) => quoted(rest)?,
        }));
    }
    if eat(rest, "<").is_none() {
        return Some(match PLAIN.contains(&name) {
            true => Ty::Plain(name.to_owned()),
            false => Ty::Named(name.to_owned()),
        });
    }
    let first = Box::new(one_type(rest)?);
    let made = match name {
        "option" => Ty::Option(first),
        "list" => Ty::List(first),
        "map" => {
            eat(rest, ", ")?;
            Ty::Map(first, Box::new(one_type(rest)?))
        }
        _ => return None,
    };
    eat(rest, ">")?;
    Some(made)
}

/// A text between quotes; `\"` and `\\` stand for themselves.
fn quoted(rest: &mut &str) -> Option<String> {
    let mut chars = rest.strip_prefix('"')?.char_indices();
    let (mut text, inside) = (String::new(), &rest[1..]);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => {
                *rest = &inside[at + 1..];
                return Some(text);
            }
            '\\' => text.push(chars.next()?.1),
            c => text.push(c),
        }
    }
    None
}
