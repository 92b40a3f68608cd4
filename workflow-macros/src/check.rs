//! Refuses functions that cannot be a step or a workflow.
//!
//! The rules, each with its reason in the message it gives:
//!
//! Both
//! - a free function: no `self`;
//! - a plain `async fn`: not `const`, `unsafe`, `extern` or variadic;
//! - at most [`MAX_ARGUMENTS`] arguments, no `&mut`, no `cfg` on one of them;
//! - an owned, nameable return type: no borrow, no `impl Trait`, no bare type parameter
//!   or projection of one;
//! - no `Option<Option<_>>` in what is read back from the journal;
//! - no name of a primitive type, because of the type that bears the function's name;
//! - no attribute that belongs to a function which is called by its symbol.
//!
//! Steps
//! - `async`, or `blocking` and not `async`;
//! - a blocking step takes owned arguments;
//! - a `#[resource]` is `&T` or `Arc<T>`;
//! - options that go together (see `together`).
//! - a step with an `undo` is not generic.
//!
//! Workflows
//! - owned arguments, no generics, no `#[resource]`;
//! - a deterministic body (see `determinism`), unless `unchecked`;
//! - an inline helper may borrow and be generic, and has neither version nor changes.

use quote::ToTokens;
use syn::{ReturnType, Safety, Type};

use crate::args::{StepOptions, WorkflowOptions};
use crate::attributes::named;
use crate::determinism;
use crate::diagnostics::{Diagnostics, Place};
use crate::model::{Function, Param, ParamKind};
use crate::together;
use crate::types::{self, Borrows};

/// Most arguments of one call: the runtime implements its traits for tuples up to this.
const MAX_ARGUMENTS: usize = 12;

/// Names that are types everywhere without an import.
const PRIMITIVES: &[&str] = &[
    "bool", "char", "f16", "f32", "f64", "f128", "i8", "i16", "i32", "i64", "i128", "isize", "str",
    "u8", "u16", "u32", "u64", "u128", "usize",
];

/// What messages call a `#[workflow(inline)]`.
const INLINE: &str = "inline workflow";

/// Checks a function under `#[step]`.
pub(crate) fn step(function: &Function, options: &StepOptions, diagnostics: &Diagnostics) {
    let check = Check {
        what: "step",
        function,
        diagnostics,
    };
    check.shape();
    check.attributes();
    check.step_is_async(options);
    check.arguments();
    for param in &function.params {
        check.resource(param);
        if options.blocking.is_some() && matches!(param.kind, ParamKind::Journaled) {
            check.owned(
                param,
                "a blocking step takes owned arguments: it runs on another thread, which may outlive what it borrows",
            );
        }
    }
    check.returns();
    together::check(options, diagnostics);
    check.undo(options);
    if options.marker {
        check.name();
    }
}

/// Checks a function under `#[workflow]`.
pub(crate) fn workflow(function: &Function, options: &WorkflowOptions, diagnostics: &Diagnostics) {
    let check = Check {
        what: if options.inline.is_some() {
            INLINE
        } else {
            "workflow"
        },
        function,
        diagnostics,
    };
    check.shape();
    check.attributes();
    if function.sig.asyncness.is_none() {
        let message = "a workflow is an `async fn`: it waits for its steps; write `async fn`";
        diagnostics.on(Place::Signature, function.sig.fn_token, message);
    }
    check.arguments();
    for param in &function.params {
        check.no_resource(param);
    }
    if options.inline.is_none() {
        check.started_from_the_journal();
        check.returns();
    } else {
        check.inline_options(options);
    }
    if options.marker != Some(false) {
        check.name();
    }
    if !options.unchecked {
        determinism::scan(&function.body, diagnostics);
    }
}

struct Check<'a> {
    what: &'static str,
    function: &'a Function,
    diagnostics: &'a Diagnostics,
}

impl Check<'_> {
    fn refuse(&self, tokens: impl ToTokens, message: impl std::fmt::Display) {
        self.diagnostics.on(Place::Signature, tokens, message);
    }

    /// What is undone is made from the journal, which names no types.
    fn undo(&self, options: &StepOptions) {
        let Some(undo) = &options.undo else {
            return;
        };
        let mut arguments = self.function.journaled();
        let generic = self.function.sig.generics.type_params().next().is_some()
            || self.function.sig.generics.const_params().next().is_some()
            || arguments.any(|param| types::impl_trait(&param.written.ty).is_some());
        if generic {
            self.refuse(
                undo,
                "a generic step has no `undo`: what it was given is read back from the journal, which \
                 does not name its type; make the step's types concrete, or keep a call with `undo_with`",
            );
        }
    }

    /// A free function without qualifiers.
    fn shape(&self) {
        let (what, sig) = (self.what, &self.function.sig);
        if let Some(receiver) = &self.function.receiver {
            self.refuse(
                receiver,
                format!(
                    "a {what} is a free function: the journal cannot hold a `self`; pass what it needs as arguments, or as `#[resource]` of a step"
                ),
            );
        }
        let plain = "remove it, and call such a function from the body";
        if let Some(token) = &sig.constness {
            self.refuse(
                token,
                format!(
                    "a {what} cannot be `const`: it runs at run time, under the engine; {plain}"
                ),
            );
        }
        if let Safety::Unsafe(token) = &sig.safety {
            self.refuse(
                token,
                format!("a {what} cannot be `unsafe`: the engine calls it again on resume, and cannot uphold a contract; {plain}"),
            );
        }
        if let Some(abi) = &sig.abi {
            self.refuse(
                abi,
                format!("a {what} cannot be `extern`: only the engine calls it; {plain}"),
            );
        }
        if let Some(variadic) = &sig.variadic {
            self.refuse(
                variadic,
                format!("a {what} cannot be variadic: every argument is journaled by its type"),
            );
        }
    }

    fn attributes(&self) {
        for (attribute, reason) in &self.function.attributes.refused {
            let path = named(attribute).to_token_stream().to_string();
            let path = path.replace(' ', "");
            let message = format!("`#[{path}]` cannot stand on a {}: {reason}", self.what);
            self.diagnostics.on(Place::Inside, attribute, message);
        }
    }

    fn step_is_async(&self, options: &StepOptions) {
        let sig = &self.function.sig;
        match (&options.blocking, &sig.asyncness) {
            (None, None) => self.refuse(
                sig.fn_token,
                "a step is an `async fn`: write `async fn`, or `#[step(blocking)]` if its body blocks the thread",
            ),
            (Some(_), Some(token)) => self.refuse(
                token,
                "a blocking step is a plain `fn`, run on the blocking pool: remove `async`, or remove `blocking`",
            ),
            _ => {}
        }
    }

    fn arguments(&self) {
        let what = self.what;
        let inline = what == INLINE;
        if let Some(extra) = self
            .function
            .journaled()
            .nth(MAX_ARGUMENTS)
            .filter(|_| !inline)
        {
            self.refuse(
                &extra.written,
                format!(
                    "a {what} has at most {MAX_ARGUMENTS} arguments: put some of them into a struct"
                ),
            );
        }
        for param in &self.function.params {
            let replayed = matches!(param.kind, ParamKind::Journaled) && !inline;
            if let Some(reference) = Borrows::of(&param.written.ty).mutable.filter(|_| replayed) {
                self.refuse(
                    reference,
                    format!("a {what} cannot take `&mut`: a call whose outcome is replayed does not run, so it would change nothing; take it by value and return what changed"),
                );
            }
            for attribute in &param.written.attrs {
                if attribute.path().is_ident("cfg") || attribute.path().is_ident("cfg_attr") {
                    self.refuse(
                        attribute,
                        format!("an argument of a {what} cannot depend on `cfg`: a run may resume in another build; put the `cfg` on the whole function"),
                    );
                }
            }
        }
    }

    /// A workflow's arguments come out of the journal when it resumes.
    fn started_from_the_journal(&self) {
        let generics = &self.function.sig.generics;
        for param in &generics.params {
            self.refuse(
                param,
                "a workflow cannot be generic: the journal names one function, and a resumed run would not know for which type; write one workflow per type, or make this `#[workflow(inline)]`",
            );
        }
        for param in self.function.journaled() {
            self.owned(
                param,
                "a workflow takes owned arguments: they are read from the journal when the run resumes, and nothing outlives it to borrow from; own it (`String` for `&str`), or make this `#[workflow(inline)]`",
            );
            if let Some(token) = types::impl_trait(&param.written.ty) {
                self.refuse(
                    token,
                    "a workflow cannot take `impl Trait`: it is generic, and a resumed run would not know for which type; name the type",
                );
            }
            self.no_nested_option(&param.written.ty);
        }
    }

    /// Refuses an argument that borrows, once.
    fn owned(&self, param: &Param, reason: &str) {
        let borrows = Borrows::of(&param.written.ty);
        if borrows.mutable.is_some() {
            return; // refused already
        }
        if let Some(tokens) = borrows.any {
            self.refuse(tokens, reason);
        }
    }

    fn resource(&self, param: &Param) {
        let ParamKind::Resource { attribute, wanted } = &param.kind else {
            return;
        };
        if wanted.is_none() {
            self.refuse(
                &param.written.ty,
                "a `#[resource]` is `&T` or `Arc<T>`: the engine owns it and shares it between runs",
            );
        }
        if attribute.meta.require_path_only().is_err() {
            self.refuse(
                attribute,
                "`#[resource]` takes no arguments: a resource is found by its type",
            );
        }
    }

    fn no_resource(&self, param: &Param) {
        if let ParamKind::Resource { attribute, .. } = &param.kind {
            self.refuse(
                attribute,
                "a workflow has no resources: what they answer is not journaled; take it in a `#[step]`",
            );
        }
    }

    /// What comes out of the journal: owned, nameable, readable back.
    fn returns(&self) {
        let what = self.what;
        let ReturnType::Type(_, ty) = &self.function.sig.output else {
            return;
        };
        if let Some(tokens) = Borrows::of(ty).any {
            self.refuse(
                tokens,
                format!("a {what} cannot return a borrow: its outcome is read from the journal on replay, and there is nothing to borrow from; return an owned value"),
            );
        }
        if let Some(token) = types::impl_trait(ty) {
            self.refuse(
                token,
                format!("a {what} cannot return `impl Trait`: its outcome is read back from the journal by its type; name the type"),
            );
        }
        if self.depends_on_the_caller(ty) {
            self.refuse(
                ty,
                format!("a {what} cannot return a bare type parameter: whether it can fail must be known here, and only the caller knows the type; return a `Result` or another type around it"),
            );
        }
        self.no_nested_option(ty);
    }

    /// `T`, `T::Output` and `<T as Trait>::Output`: types that are known only at the call.
    fn depends_on_the_caller(&self, ty: &Type) -> bool {
        let Type::Path(path) = ty else { return false };
        let generics = &self.function.sig.generics;
        let first = path.path.segments.first();
        let mut params = generics.type_params();
        let named = params.any(|param| first.is_some_and(|first| first.ident == param.ident));
        named || (path.qself.is_some() && !generics.params.is_empty())
    }

    fn no_nested_option(&self, ty: &Type) {
        if let Some(nested) = types::nested_option(ty) {
            self.refuse(
                nested,
                "`Option<Option<_>>` does not survive the journal: `Some(None)` would come back as `None`; use an enum of your own",
            );
        }
    }

    /// The name bears a type too.
    fn name(&self) {
        let (what, name) = (self.what, &self.function.sig.ident);
        let text = name.to_string();
        if PRIMITIVES.contains(&&*text) {
            self.refuse(
                name,
                format!("a {what} cannot be called `{text}`: a type of that name stands beside it and would hide the primitive; rename the function (`name = \"{text}\"` keeps what the journal calls it), or add `marker = false`"),
            );
        }
    }

    /// A helper is part of the run that calls it.
    fn inline_options(&self, options: &WorkflowOptions) {
        let given = [
            ("version", options.version.is_some()),
            ("changes", options.changes.is_some()),
            ("key_ttl", options.key_ttl.is_some()),
            ("on_failure", options.on_failure.is_some()),
        ];
        for (name, _) in given.iter().filter(|(_, given)| *given) {
            let message = format!(
                "`inline` and `{name}` do not go together: a helper is part of the run that calls it and is never started or registered itself; remove `{name}`"
            );
            self.diagnostics.on(Place::Inside, &options.inline, message);
        }
    }
}
