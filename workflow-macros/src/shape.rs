//! The shape of a workflow's body: which functions it calls, in which order, under which branches.
//!
//! Owns the walk from a body to a tree of calls, branches, loops and joins. The tree says what the
//! source says: it knows names, not what they resolve to (that is `expand/shape`), and it changes
//! nothing of the body. A body that does not parse has an empty shape: the compiler reports it in its
//! own words.
//!
//! What counts as a call: `name(..)` and `path::to::name(..)` with a lower-case name, in code and in the
//! arguments of macros. Not `name(..)?`, `!name(..)`, `name(..) + 1` or `if name(..)`, because the call
//! of a step is a future before it is awaited; not methods; not what nested items do.

mod imports;
mod macros;

use std::collections::HashMap;

use proc_macro2::{Group, Ident, Span};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Arm, Attribute, Block, Expr, Local, LocalInit, Path, PathSegment, Stmt};

use crate::written::label;
use imports::Names;

pub(crate) use imports::Lookup;

/// Types that are known everywhere by a lower-case name: what they are asked for is no step.
const PRIMITIVES: &[&str] = &[
    "bool", "char", "f16", "f32", "f64", "f128", "i8", "i16", "i32", "i64", "i128", "isize", "str",
    "u8", "u16", "u32", "u64", "u128", "usize",
];

/// Functions of the runtime whose first argument is a name that the journal knows.
const NAMED: &[&str] = &[
    "deprecate_patch",
    "hook",
    "outbox",
    "patched",
    "publish",
    "scope",
    "signals",
    "wait_for",
];

/// Methods by which a call is named.
const KEYS: &[&str] = &["idempotency_key", "key"];

/// What a body calls, and how.
#[derive(Default)]
pub(crate) struct Shape {
    /// The functions, each once.
    pub(crate) callees: Vec<Callee>,
    /// What happens, in the order of the source.
    pub(crate) body: Vec<Node>,
}

/// A function that is called.
pub(crate) struct Callee {
    /// How it is written at its first call.
    pub(crate) text: String,
    /// Its own name.
    pub(crate) name: Ident,
    /// Where that name is to be looked up.
    pub(crate) lookup: Lookup,
}

/// One thing that happens.
pub(crate) enum Node {
    Call {
        callee: usize,
        place: Span,
        /// What names this call: its key, or the name that a function of the runtime is given.
        said: String,
    },
    Branch {
        head: String,
        place: Span,
        arms: Vec<(String, Vec<Node>)>,
    },
    /// A loop, or a closure: any number of times.
    Loop {
        head: String,
        place: Span,
        body: Vec<Node>,
    },
    /// Branches that go on at the same time.
    Together {
        head: String,
        race: bool,
        place: Span,
        branches: Vec<Vec<Node>>,
    },
    /// An `async` block.
    Block { place: Span, body: Vec<Node> },
}

impl Shape {
    /// Reads the shape of a body, braces included.
    pub(crate) fn of(body: &Group) -> Self {
        let Ok(block) = syn::parse2::<Block>(proc_macro2::TokenTree::from(body.clone()).into())
        else {
            return Self::default();
        };
        let mut walk = Walk::default();
        walk.visit_block(&block);
        Self {
            callees: walk.callees,
            body: walk.out,
        }
    }
}

/// The walk over one body.
#[derive(Default)]
struct Walk {
    callees: Vec<Callee>,
    known: HashMap<String, usize>,
    /// What the blocks around bring into scope, the outermost first.
    names: Vec<Names>,
    /// How many `cfg`s stand around: what they guard may not be there to be looked up.
    conditions: usize,
    out: Vec<Node>,
}

impl Walk {
    /// What `walk` finds, apart from what was found before.
    fn apart(&mut self, walk: impl FnOnce(&mut Self)) -> Vec<Node> {
        let before = std::mem::take(&mut self.out);
        walk(self);
        std::mem::replace(&mut self.out, before)
    }

    fn under(&mut self, attributes: &[Attribute], walk: impl FnOnce(&mut Self)) {
        let conditional = attributes.iter().any(|it| it.path().is_ident("cfg"));
        self.conditions += usize::from(conditional);
        walk(self);
        self.conditions -= usize::from(conditional);
    }

    fn call(&mut self, path: &Path) {
        let Some(segment) = callable(path) else {
            return;
        };
        let prefix = path.segments.iter().take(path.segments.len() - 1);
        let prefix: Vec<Ident> = prefix.map(|it| it.ident.clone()).collect();
        let mut lookup = Lookup::of(&self.names, path, &prefix, &segment.ident);
        if self.conditions > 0 {
            lookup = lookup.only_here();
        }
        let text = text_of(path);
        let key = format!("{text} {}", lookup.key());
        let callee = *self.known.entry(key).or_insert_with(|| {
            self.callees.push(Callee {
                name: lookup.name(&segment.ident),
                text,
                lookup,
            });
            self.callees.len() - 1
        });
        let place = segment.ident.span();
        self.out.push(Node::Call {
            callee,
            place,
            said: String::new(),
        });
    }

    /// Adds to what the call says that was found last.
    fn say(&mut self, what: String) {
        if let Some(Node::Call { said, .. }) = self.out.last_mut() {
            *said = what;
        }
    }

    /// Walks an expression whose value is no future, so a call there is of a plain function.
    fn value(&mut self, expr: &Expr) {
        match expr {
            Expr::Call(call) if matches!(&*call.func, Expr::Path(_)) => {
                call.args.iter().for_each(|arg| self.visit_expr(arg));
            }
            Expr::Paren(it) => self.value(&it.expr),
            other => self.visit_expr(other),
        }
    }

    fn push_loop(&mut self, head: String, place: Span, body: Vec<Node>) {
        if !body.is_empty() {
            self.out.push(Node::Loop { head, place, body });
        }
    }

    fn push_branch(&mut self, head: String, place: Span, arms: Vec<(String, Vec<Node>)>) {
        if arms.iter().any(|(_, body)| !body.is_empty()) {
            self.out.push(Node::Branch { head, place, arms });
        }
    }

    fn push_together(&mut self, head: String, place: Span, branches: Vec<Vec<Node>>) {
        let mut branches: Vec<_> = branches.into_iter().filter(|it| !it.is_empty()).collect();
        match branches.len() {
            0 => {}
            1 => self.out.append(&mut branches[0]),
            _ => self.out.push(Node::Together {
                race: is_race(&head),
                head,
                place,
                branches,
            }),
        }
    }
}

/// The segment that names the function, if the path can be the path of a step.
fn callable(path: &Path) -> Option<&PathSegment> {
    let last = path.segments.last()?;
    let lower = |ident: &Ident| !ident.to_string().starts_with(char::is_uppercase);
    let mut prefix = path.segments.iter().take(path.segments.len() - 1);
    let module = |segment: &PathSegment| {
        segment.arguments.is_none()
            && lower(&segment.ident)
            && !PRIMITIVES
                .iter()
                .any(|primitive| segment.ident == primitive)
    };
    (lower(&last.ident) && prefix.all(module)).then_some(last)
}

/// Where a function is to be looked up that is named outside a body, if it can be a step.
pub(crate) fn lookup(path: &Path) -> Option<(&Ident, Lookup)> {
    let name = &callable(path)?.ident;
    let prefix = path.segments.iter().take(path.segments.len() - 1);
    let prefix: Vec<Ident> = prefix.map(|it| it.ident.clone()).collect();
    Some((name, Lookup::of(&[], path, &prefix, name)))
}

/// Says whether an expression is a call of a function, with or without methods behind it.
fn is_call(expr: &Expr) -> bool {
    match expr {
        Expr::Call(call) => matches!(&*call.func, Expr::Path(_)),
        Expr::MethodCall(it) => is_call(&it.receiver),
        Expr::Paren(it) => is_call(&it.expr),
        _ => false,
    }
}

/// A path without the arguments of its types.
fn text_of(path: &Path) -> String {
    let names: Vec<_> = path
        .segments
        .iter()
        .map(|it| it.ident.to_string())
        .collect();
    names.join("::")
}

/// Says whether a macro or function drives several futures at once.
fn drives_together(name: &str) -> bool {
    let name = name.rsplit("::").next().unwrap_or(name);
    name.starts_with("join") || name.starts_with("try_join") || is_race(name)
}

/// Says whether what drives several futures is done with the first that is ready.
fn is_race(name: &str) -> bool {
    let name = name.rsplit("::").next().unwrap_or(name);
    name.starts_with("select") || name.starts_with("race")
}

impl<'ast> Visit<'ast> for Walk {
    fn visit_item(&mut self, _: &'ast syn::Item) {
        // Nothing in a nested item happens when the body does.
    }

    fn visit_block(&mut self, block: &'ast Block) {
        self.names.push(Names::of(block));
        visit::visit_block(self, block);
        self.names.pop();
    }

    fn visit_stmt(&mut self, stmt: &'ast Stmt) {
        let attributes = match stmt {
            Stmt::Local(local) => &local.attrs[..],
            Stmt::Macro(it) => &it.attrs[..],
            Stmt::Expr(expr, _) => attributes_of(expr),
            Stmt::Item(_) => &[],
        };
        self.under(attributes, |walk| visit::visit_stmt(walk, stmt));
    }

    fn visit_local(&mut self, local: &'ast Local) {
        let Some(LocalInit { expr, diverge, .. }) = &local.init else {
            return;
        };
        self.visit_expr(expr);
        if let Some((_, otherwise)) = diverge {
            let body = self.apart(|walk| walk.visit_expr(otherwise));
            let head = format!("let {}", label(&local.pat));
            self.push_branch(head, local.span(), vec![("else".into(), body)]);
        }
    }

    fn visit_expr_try(&mut self, tried: &'ast syn::ExprTry) {
        self.value(&tried.expr);
    }

    fn visit_expr_unary(&mut self, it: &'ast syn::ExprUnary) {
        self.value(&it.expr);
    }

    fn visit_expr_binary(&mut self, it: &'ast syn::ExprBinary) {
        self.value(&it.left);
        self.value(&it.right);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        let Expr::Path(function) = &*call.func else {
            return visit::visit_expr_call(self, call);
        };
        let name = text_of(&function.path);
        if call.args.len() > 1 && drives_together(&name) {
            let branch = |walk: &mut Self, arg| walk.apart(|walk| walk.visit_expr(arg));
            let branches = call.args.iter().map(|arg| branch(self, arg)).collect();
            return self.push_together(name, function.span(), branches);
        }
        call.args.iter().for_each(|arg| self.visit_expr(arg));
        let before = self.out.len();
        if function.qself.is_none() {
            self.call(&function.path);
        }
        let last = name.rsplit("::").next().unwrap_or(&name);
        if self.out.len() > before
            && NAMED.contains(&last)
            && let Some(first) = call.args.first()
        {
            self.say(label(first));
        }
    }

    fn visit_expr_method_call(&mut self, it: &'ast syn::ExprMethodCall) {
        let before = self.out.len();
        self.visit_expr(&it.receiver);
        let is_key = KEYS.iter().any(|name| it.method == name);
        if is_key && self.out.len() > before && is_call(&it.receiver) {
            self.say(format!("{} {}", it.method, label(&it.args)));
        }
        it.args.iter().for_each(|arg| self.visit_expr(arg));
    }

    fn visit_expr_if(&mut self, it: &'ast syn::ExprIf) {
        self.value(&it.cond);
        let then = self.apart(|walk| walk.visit_block(&it.then_branch));
        let mut arms = vec![("yes".into(), then)];
        if let Some((_, otherwise)) = &it.else_branch {
            arms.push(("no".into(), self.apart(|walk| walk.visit_expr(otherwise))));
        }
        self.push_branch(label(&it.cond), it.if_token.span, arms);
    }

    fn visit_expr_match(&mut self, it: &'ast syn::ExprMatch) {
        self.visit_expr(&it.expr);
        let arm = |walk: &mut Self, arm: &'ast Arm| {
            let body = walk.apart(|walk| {
                walk.under(&arm.attrs, |walk| visit::visit_arm(walk, arm));
            });
            (label(&arm.pat), body)
        };
        let arms = it.arms.iter().map(|it| arm(self, it)).collect();
        self.push_branch(label(&it.expr), it.match_token.span, arms);
    }

    fn visit_expr_for_loop(&mut self, it: &'ast syn::ExprForLoop) {
        self.visit_expr(&it.expr);
        let body = self.apart(|walk| walk.visit_block(&it.body));
        let head = format!("for {} in {}", label(&it.pat), label(&it.expr));
        self.push_loop(head, it.for_token.span, body);
    }

    fn visit_expr_while(&mut self, it: &'ast syn::ExprWhile) {
        let body = self.apart(|walk| {
            walk.value(&it.cond);
            walk.visit_block(&it.body);
        });
        let head = format!("while {}", label(&it.cond));
        self.push_loop(head, it.while_token.span, body);
    }

    fn visit_expr_loop(&mut self, it: &'ast syn::ExprLoop) {
        let body = self.apart(|walk| walk.visit_block(&it.body));
        self.push_loop("loop".into(), it.loop_token.span, body);
    }

    fn visit_expr_closure(&mut self, it: &'ast syn::ExprClosure) {
        let body = self.apart(|walk| walk.visit_expr(&it.body));
        let head = format!("|{}|", label(&it.inputs));
        self.push_loop(head, it.span(), body);
    }

    fn visit_expr_async(&mut self, it: &'ast syn::ExprAsync) {
        let body = self.apart(|walk| walk.visit_block(&it.block));
        let place = it.async_token.span;
        if !body.is_empty() {
            self.out.push(Node::Block { place, body });
        }
    }

    fn visit_macro(&mut self, it: &'ast syn::Macro) {
        self.macro_input(it);
    }
}

/// The attributes of an expression, where they can stand on a statement.
fn attributes_of(expr: &Expr) -> &[Attribute] {
    match expr {
        Expr::Assign(it) => &it.attrs,
        Expr::Async(it) => &it.attrs,
        Expr::Await(it) => &it.attrs,
        Expr::Block(it) => &it.attrs,
        Expr::Call(it) => &it.attrs,
        Expr::ForLoop(it) => &it.attrs,
        Expr::If(it) => &it.attrs,
        Expr::Loop(it) => &it.attrs,
        Expr::Macro(it) => &it.attrs,
        Expr::Match(it) => &it.attrs,
        Expr::MethodCall(it) => &it.attrs,
        Expr::Return(it) => &it.attrs,
        Expr::Try(it) => &it.attrs,
        Expr::While(it) => &it.attrs,
        _ => &[],
    }
}

#[cfg(test)]
mod tests;
