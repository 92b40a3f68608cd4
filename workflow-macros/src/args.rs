//! The options of the two attributes: as typed, then validated.
//!
//! Owns names, grammar and messages of every option. Validation keeps going after a mistake
//! and falls back to the option's default, so that the rest is still checked and expanded.

use proc_macro2::{Ident, TokenStream, TokenTree};
use syn::ext::IdentExt;
use syn::parse::discouraged::Speculative;
use syn::parse::{ParseStream, Parser};
use syn::{Expr, ExprPath, Lit, LitInt, LitStr, Path, Token};

use crate::diagnostics::{Diagnostics, Place};
use crate::duration;

/// The known options of `#[step]`.
const STEP_OPTIONS: &[&str] = &[
    "name",
    "max_attempts",
    "backoff",
    "timeout",
    "retry_if",
    "key",
    "undo",
    "effect",
    "at_most_once",
    "intent",
    "fresh_for",
    "on_stale",
    "durability",
    "audit",
    "blocking",
    "marker",
    "crate",
];
/// Options of `#[step]` that a later release will have.
const STEP_RESERVED: &[&str] = &[];
/// What `effect` can say, and what the runtime calls it.
const EFFECTS: &[(&str, &str)] = &[
    ("read", "Read"),
    ("create", "Create"),
    ("update", "Update"),
    ("payment", "Payment"),
    ("message", "Message"),
];
/// What `on_stale` can say, and what the runtime calls it.
const ON_STALE: &[(&str, &str)] = &[("rerun", "Rerun"), ("abort", "Abort")];
/// What `durability` can say, and what the runtime calls it.
const DURABILITIES: &[(&str, &str)] = &[("buffered", "Buffered"), ("synced", "Synced")];
/// The known options of `#[workflow]`.
const WORKFLOW_OPTIONS: &[&str] = &[
    "name",
    "version",
    "changes",
    "key_ttl",
    "on_failure",
    "unchecked",
    "inline",
    "marker",
    "crate",
];
/// Options of `#[workflow]` that a later release will have.
const WORKFLOW_RESERVED: &[&str] = &[];
/// What `on_failure` can say, and what the runtime calls it.
const ON_FAILURE: &[(&str, &str)] = &[("keep", "Keep"), ("release", "Release")];

/// Longest name of a step or workflow: it is written into every record of a journal.
const MAX_NAME_BYTES: usize = 200;

/// The validated options of `#[step]`.
pub(crate) struct StepOptions {
    pub(crate) name: Option<String>,
    pub(crate) max_attempts: Option<u32>,
    /// First and longest wait between attempts, in milliseconds.
    pub(crate) backoff: Option<(u64, u64)>,
    /// In milliseconds.
    pub(crate) timeout: Option<u64>,
    pub(crate) retry_if: Option<ExprPath>,
    pub(crate) key: Option<Expr>,
    /// The step that takes this one back.
    pub(crate) undo: Option<ExprPath>,
    /// What the runtime calls it, as are the other choices.
    pub(crate) effect: Option<&'static str>,
    pub(crate) at_most_once: bool,
    pub(crate) intent: bool,
    /// In milliseconds.
    pub(crate) fresh_for: Option<u64>,
    pub(crate) on_stale: Option<&'static str>,
    pub(crate) durability: Option<&'static str>,
    /// Why what the audit finds is right as it is.
    pub(crate) audit: Option<String>,
    pub(crate) blocking: Option<Ident>,
    pub(crate) marker: bool,
    pub(crate) runtime: Path,
    /// The names of all options as typed.
    pub(crate) given: Vec<Ident>,
}

/// What a replay does with calls that the journal does not know.
#[derive(Clone, Copy)]
pub(crate) enum Changes {
    Strict,
    Tolerant,
}

/// The validated options of `#[workflow]`.
pub(crate) struct WorkflowOptions {
    pub(crate) name: Option<String>,
    pub(crate) version: Option<u32>,
    pub(crate) changes: Option<Changes>,
    /// In milliseconds.
    pub(crate) key_ttl: Option<u64>,
    /// What the runtime calls it.
    pub(crate) on_failure: Option<&'static str>,
    pub(crate) unchecked: bool,
    pub(crate) inline: Option<Ident>,
    pub(crate) marker: Option<bool>,
    pub(crate) runtime: Path,
}

impl StepOptions {
    /// Reads the options of `#[step(…)]`.
    pub(crate) fn read(tokens: TokenStream, diagnostics: &Diagnostics) -> Self {
        let mut options = Self {
            name: None,
            max_attempts: None,
            backoff: None,
            timeout: None,
            retry_if: None,
            key: None,
            undo: None,
            effect: None,
            at_most_once: false,
            intent: false,
            fresh_for: None,
            on_stale: None,
            durability: None,
            audit: None,
            blocking: None,
            marker: true,
            runtime: default_runtime(),
            given: Vec::new(),
        };
        for option in typed("step", STEP_OPTIONS, STEP_RESERVED, tokens, diagnostics) {
            let result = match &*option.name.to_string() {
                "name" => option.name_text().map(|it| options.name = Some(it)),
                "max_attempts" => option
                    .positive("a step is tried at least once")
                    .map(|it| options.max_attempts = Some(it)),
                "backoff" => option.backoff().map(|it| options.backoff = Some(it)),
                "timeout" => option
                    .limit("10s", "no attempt could ever finish")
                    .map(|it| options.timeout = Some(it)),
                "retry_if" => option.path().map(|it| options.retry_if = Some(it)),
                "undo" => option.undo().map(|it| options.undo = Some(it)),
                "key" => option.expression().map(|it| options.key = Some(it)),
                "effect" => option.choice(EFFECTS).map(|it| options.effect = Some(it)),
                "at_most_once" => option.flag().map(|()| options.at_most_once = true),
                "intent" => option.flag().map(|()| options.intent = true),
                "fresh_for" => option
                    .limit("30s", "no outcome could ever be relied on")
                    .map(|it| options.fresh_for = Some(it)),
                "on_stale" => option
                    .choice(ON_STALE)
                    .map(|it| options.on_stale = Some(it)),
                "durability" => option
                    .choice(DURABILITIES)
                    .map(|it| options.durability = Some(it)),
                "audit" => option.reason().map(|it| options.audit = Some(it)),
                "blocking" => option
                    .flag()
                    .map(|()| options.blocking = Some(option.name.clone())),
                "marker" => option.marker().map(|it| options.marker = it),
                _ => option.runtime().map(|it| options.runtime = it),
            };
            report(result, diagnostics);
            options.given.push(option.name);
        }
        options
    }

    /// Returns an option as typed, if it is given.
    pub(crate) fn given(&self, name: &str) -> Option<&Ident> {
        self.given.iter().find(|given| *given == name)
    }
}

impl WorkflowOptions {
    /// Reads the options of `#[workflow(…)]`.
    pub(crate) fn read(tokens: TokenStream, diagnostics: &Diagnostics) -> Self {
        let mut options = Self {
            name: None,
            version: None,
            changes: None,
            key_ttl: None,
            on_failure: None,
            unchecked: false,
            inline: None,
            marker: None,
            runtime: default_runtime(),
        };
        let (known, reserved) = (WORKFLOW_OPTIONS, WORKFLOW_RESERVED);
        for option in typed("workflow", known, reserved, tokens, diagnostics) {
            let result = match &*option.name.to_string() {
                "name" => option.name_text().map(|it| options.name = Some(it)),
                "version" => option
                    .positive("versions count from 1")
                    .map(|it| options.version = Some(it)),
                "changes" => option.changes().map(|it| options.changes = Some(it)),
                "key_ttl" => option
                    .limit("90d", "its key would name nothing once the run has ended")
                    .map(|it| options.key_ttl = Some(it)),
                "on_failure" => option
                    .choice(ON_FAILURE)
                    .map(|it| options.on_failure = Some(it)),
                "unchecked" => option.flag().map(|()| options.unchecked = true),
                "inline" => option
                    .flag()
                    .map(|()| options.inline = Some(option.name.clone())),
                "marker" => option.marker().map(|it| options.marker = Some(it)),
                _ => option.runtime().map(|it| options.runtime = it),
            };
            report(result, diagnostics);
        }
        options
    }
}

fn default_runtime() -> Path {
    syn::parse_quote!(::workflow_runtime)
}

fn report(result: syn::Result<()>, diagnostics: &Diagnostics) {
    if let Err(error) = result {
        diagnostics.push(Place::Inside, error);
    }
}

/// One option as typed: `name` or `name = value`.
struct Typed {
    name: Ident,
    value: Option<Expr>,
}

/// Reads a list of options, refusing the unknown, the reserved and the repeated.
fn typed(
    attribute: &str,
    known: &[&str],
    reserved: &[&str],
    tokens: TokenStream,
    diagnostics: &Diagnostics,
) -> Vec<Typed> {
    let read = |input: ParseStream<'_>| Ok(read_all(input, diagnostics));
    // The reader takes every token and reports mistakes itself; syn may know of one more, inside of brackets.
    let all = read.parse2(tokens).unwrap_or_else(|error| {
        diagnostics.push(Place::Inside, error);
        Vec::new()
    });

    let mut kept: Vec<Typed> = Vec::new();
    for option in all {
        let name = option.name.to_string();
        let mistake = if reserved.contains(&&*name) {
            format!(
                "`{name}` is reserved for a later release of workflow-runtime and does nothing yet: remove it"
            )
        } else if !known.contains(&&*name) {
            unknown_option(attribute, known, &name)
        } else if kept.iter().any(|earlier| earlier.name == option.name) {
            format!("`{name}` is given twice: keep the one that is meant")
        } else {
            kept.push(option);
            continue;
        };
        diagnostics.on(Place::Inside, &option.name, mistake);
    }
    kept
}

fn unknown_option(attribute: &str, known: &[&str], name: &str) -> String {
    let nearest = known
        .iter()
        .map(|option| (edit_distance(option, name), option))
        .min()
        .filter(|(distance, option)| {
            *distance <= 2 || option.contains(name) || name.contains(**option)
        });
    let hint = nearest.map_or_else(String::new, |(_, option)| {
        format!(", did you mean `{option}`?")
    });
    let list = known.join("`, `");
    format!("`#[{attribute}]` has no option `{name}`{hint} (it has `{list}`)")
}

/// Reads options up to the end, and past each mistake to the next comma.
fn read_all(input: ParseStream<'_>, diagnostics: &Diagnostics) -> Vec<Typed> {
    let mut all = Vec::new();
    while !input.is_empty() {
        let is_read = match read_one(input) {
            Ok(option) => {
                all.push(option);
                true
            }
            Err(error) => {
                diagnostics.push(Place::Inside, error);
                false
            }
        };
        let mut extra = TokenStream::new();
        while !input.is_empty() && !input.peek(Token![,]) {
            let token: TokenTree = input.parse().expect("the input is not empty");
            extra.extend([token]);
        }
        let has_value = all.last().is_some_and(|last| last.value.is_some());
        if is_read && has_value && !extra.is_empty() {
            diagnostics.on(Place::Inside, extra, "expected a comma between two options");
        }
        let _comma: Option<Token![,]> = input.parse().expect("a comma or the end");
    }
    all
}

fn read_one(input: ParseStream<'_>) -> syn::Result<Typed> {
    let name = input.call(Ident::parse_any).map_err(|error| {
        syn::Error::new(
            error.span(),
            "expected an option, as in `name = \"charge\"`",
        )
    })?;
    if input.parse::<Option<Token![=]>>()?.is_none() {
        return Ok(Typed { name, value: None });
    }
    // On a fork: what syn leaves unread in brackets when it fails would be a mistake of the whole input, reported twice.
    let ahead = input.fork();
    let value = ahead.parse().map_err(|error: syn::Error| {
        syn::Error::new(
            error.span(),
            format!("the value of `{name}` is not an expression: {error}"),
        )
    })?;
    input.advance_to(&ahead);
    Ok(Typed {
        name,
        value: Some(value),
    })
}

impl Typed {
    fn mistake(&self, expected: &str) -> syn::Error {
        let message = format!("`{}` {expected}", self.name);
        match &self.value {
            Some(value) => syn::Error::new_spanned(value, message),
            None => syn::Error::new_spanned(&self.name, message),
        }
    }

    fn literal(&self) -> Option<&Lit> {
        match &self.value {
            Some(Expr::Lit(literal)) => Some(&literal.lit),
            _ => None,
        }
    }

    fn text(&self, expected: &str) -> syn::Result<&LitStr> {
        match self.literal() {
            Some(Lit::Str(text)) => Ok(text),
            _ => Err(self.mistake(expected)),
        }
    }

    fn flag(&self) -> syn::Result<()> {
        match self.value {
            None => Ok(()),
            Some(_) => Err(self.mistake("takes no value: write it alone")),
        }
    }

    fn name_text(&self) -> syn::Result<String> {
        let text = self
            .text("takes a text, as in `name = \"charge\"`")?
            .value();
        let fits = !text.is_empty() && text.len() <= MAX_NAME_BYTES;
        if fits && !text.chars().any(char::is_control) {
            Ok(text)
        } else {
            Err(self.mistake(&format!(
                "takes 1 to {MAX_NAME_BYTES} bytes without control characters: it is written into every record and shown in reports"
            )))
        }
    }

    fn reason(&self) -> syn::Result<String> {
        let expected = "takes the reason why what the audit finds about this step is right as it is, as in `audit = \"the carrier ignores a second label\"`";
        let text = self.text(expected)?.value();
        match text.trim() {
            "" => Err(self.mistake(expected)),
            reason => Ok(reason.to_owned()),
        }
    }

    fn positive(&self, reason: &str) -> syn::Result<u32> {
        let number = match self.literal() {
            Some(Lit::Int(number)) => LitInt::base10_parse::<u32>(number).ok(),
            _ => None,
        };
        number.filter(|number| *number >= 1).ok_or_else(|| {
            let name = &self.name;
            self.mistake(&format!(
                "takes a whole number from 1, as in `{name} = 3`: {reason}"
            ))
        })
    }

    fn backoff(&self) -> syn::Result<(u64, u64)> {
        let expected = "takes one wait or a range of waits, as in `backoff = \"1s\"` or `backoff = \"200ms..30s\"`";
        let text = self.text(expected)?.value();
        duration::range(&text).map_err(|why| self.mistake(&format!("{expected}: {why}")))
    }

    fn limit(&self, example: &str, never: &str) -> syn::Result<u64> {
        let name = &self.name;
        let expected = format!("takes a duration, as in `{name} = \"{example}\"`");
        let text = self.text(&expected)?.value();
        let millis = duration::single(&text);
        let millis = millis.map_err(|why| self.mistake(&format!("{expected}: {why}")))?;
        if millis == 0 {
            return Err(self.mistake(&format!("cannot be zero: {never}")));
        }
        Ok(millis)
    }

    /// One of several texts; gives what the runtime calls it.
    fn choice(&self, choices: &[(&str, &'static str)]) -> syn::Result<&'static str> {
        let texts: Vec<_> = choices
            .iter()
            .map(|(text, _)| format!("\"{text}\""))
            .collect();
        let expected = format!("takes one of {}", texts.join(", "));
        let text = self.text(&expected)?.value();
        let chosen = choices.iter().find(|(choice, _)| *choice == text);
        chosen
            .map(|(_, name)| *name)
            .ok_or_else(|| self.mistake(&expected))
    }

    fn path(&self) -> syn::Result<ExprPath> {
        match &self.value {
            Some(Expr::Path(path)) => Ok(path.clone()),
            _ => Err(self.mistake(
                "takes the path of a function `fn(&E) -> bool`, as in `retry_if = is_transient`",
            )),
        }
    }

    fn undo(&self) -> syn::Result<ExprPath> {
        match &self.value {
            Some(Expr::Path(path)) => Ok(path.clone()),
            _ => Err(self.mistake(
                "takes the name of a step that is given this one's arguments, owned, and what it \
                 returned as an `Option`, as in `undo = refund`",
            )),
        }
    }

    fn expression(&self) -> syn::Result<Expr> {
        self.value.clone().ok_or_else(|| {
            self.mistake("takes an expression over the arguments, as in `key = order.id`")
        })
    }

    fn marker(&self) -> syn::Result<bool> {
        match self.literal() {
            Some(Lit::Bool(value)) => Ok(value.value),
            _ => Err(self.mistake(
                "takes `true` or `false`: `marker = false` leaves out the type that bears the function's name",
            )),
        }
    }

    fn changes(&self) -> syn::Result<Changes> {
        let expected = "takes `\"strict\"` (the default: code that does not fit the journal is parked) or `\"tolerant\"` (calls that the journal does not know run as inserted steps)";
        match &*self.text(expected)?.value() {
            "strict" => Ok(Changes::Strict),
            "tolerant" => Ok(Changes::Tolerant),
            _ => Err(self.mistake(expected)),
        }
    }

    fn runtime(&self) -> syn::Result<Path> {
        let expected = "takes the path of workflow-runtime as a text, as in `crate = \"::wf\"`";
        let text = self.text(expected)?;
        text.parse_with(Path::parse_mod_style)
            .map_err(|_| self.mistake(expected))
    }
}

/// Counts the single-character edits between two names.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
