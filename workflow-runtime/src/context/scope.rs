//! Scopes: the structure of a workflow that ids are derived from.
//!
//! Owns the scope tree of one pass through a workflow: which `async` block, async closure
//! or inline helper a call stands in, and how many calls of a name were made there before. A scope
//! is claimed when its block is *created*, in program order, so nothing depends on which
//! future happens to be polled first. It never looks at inputs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write as _;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::{Ambient, current_scope, enter};
use crate::engine::core::RunCore;
use crate::id_map::IdMap;
use crate::ids::{CallIds, CallKind, Discriminator, StepId, random_stream};

/// Up to so many names of calls, a scope keeps no room for more.
const FEW_NAMES: usize = 4;

/// One scope of one run.
pub(crate) struct Scope {
    core: Arc<RunCore>,
    /// Elements from the root, each escaped, joined by `/`; empty at the root. Two different
    /// paths never have the same text.
    path: Box<str>,
    claims: Mutex<Claims>,
}

/// What was claimed in a scope so far.
#[derive(Default)]
struct Claims {
    /// Calls made, by kind and name. A handful of names, so a list beats a map.
    calls: Vec<(CallKind, &'static str, u64)>,
    blocks: u64,
    random_position: u64,
    /// What most scopes never have, apart: every waiting run keeps its scopes in memory.
    rare: Option<Box<RareClaims>>,
}

#[derive(Default)]
struct RareClaims {
    closures: u64,
    helpers: Vec<(&'static str, u64)>,
    /// Named scopes, so that a name used twice gives two scopes and never the same ids.
    named: HashMap<Box<str>, u64>,
    /// Names that were called more than once, without a key.
    repeated: Vec<Repeated>,
    /// Messages pushed, by outbox.
    messages: HashMap<Box<str>, u64>,
    /// Keyed calls, to refuse a repeated key; the place is for the message.
    keyed: IdMap<StepId, &'static Location<'static>>,
}

/// A name that was called more than once in a scope: one call alone would gain nothing.
struct Repeated {
    kind: CallKind,
    name: &'static str,
    /// `None` if what the ids have in common is very long.
    ids: Option<CallIds>,
}

impl RareClaims {
    /// What the ids of a name's calls have in common, made with its second call.
    fn repeated(
        &mut self,
        kind: CallKind,
        name: &'static str,
        make: impl FnOnce() -> Option<CallIds>,
    ) -> Option<&mut CallIds> {
        let is_it = |known: &Repeated| known.kind == kind && known.name == name;
        let at = match self.repeated.iter().position(is_it) {
            Some(at) => at,
            None => {
                let ids = make();
                self.repeated.push(Repeated { kind, name, ids });
                self.repeated.len() - 1
            }
        };
        self.repeated[at].ids.as_mut()
    }
}

impl Claims {
    fn rare(&mut self) -> &mut RareClaims {
        self.rare.get_or_insert_default()
    }
}

/// What opens a scope.
#[derive(Clone, Copy)]
pub(crate) enum ScopeElement<'a> {
    /// The n-th `async` block created in its parent.
    Block,
    /// The n-th async closure first polled in its parent.
    Closure,
    /// The n-th call of an inline helper of that name.
    Helper(&'static str),
    /// A scope that the user named.
    Named(&'a str),
}

impl Scope {
    /// The scope in which a workflow's body begins.
    pub(crate) fn root(core: Arc<RunCore>) -> Arc<Self> {
        Arc::new(Self {
            core,
            path: "".into(),
            claims: Mutex::default(),
        })
    }

    /// The scope in which a workflow's body begins anew after a checkpoint.
    pub(crate) fn of_pass(core: Arc<RunCore>, pass: u64) -> Arc<Self> {
        let path = match pass {
            0 => String::new(),
            pass => format!("k{pass}"),
        };
        Arc::new(Self {
            core,
            path: path.into(),
            claims: Mutex::default(),
        })
    }

    pub(crate) fn core(&self) -> &Arc<RunCore> {
        &self.core
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The element of the pass that the scope is in; empty in the first. No other element begins with a `k`.
    pub(crate) fn pass(&self) -> &str {
        let first = self.path.split('/').next().unwrap_or_default();
        if first.starts_with('k') { first } else { "" }
    }

    fn claims(&self) -> std::sync::MutexGuard<'_, Claims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims the next scope of a kind below this one.
    pub(crate) fn child(&self, element: ScopeElement<'_>) -> Arc<Self> {
        let mut path = String::with_capacity(self.path.len() + 16);
        path.push_str(&self.path);
        if !path.is_empty() {
            path.push('/');
        }
        let mut claims = self.claims();
        match element {
            ScopeElement::Block => {
                let _ = write!(path, "a{}", take_next(&mut claims.blocks));
            }
            ScopeElement::Closure => {
                let _ = write!(path, "c{}", take_next(&mut claims.rare().closures));
            }
            ScopeElement::Helper(name) => {
                let helpers = &mut claims.rare().helpers;
                let at = match helpers.iter().position(|(known, _)| *known == name) {
                    Some(at) => at,
                    None => {
                        helpers.push((name, 0));
                        helpers.len() - 1
                    }
                };
                let n = take_next(&mut helpers[at].1);
                path.push_str("h:");
                push_escaped(&mut path, name);
                let _ = write!(path, "#{n}");
            }
            ScopeElement::Named(name) => {
                let n = take_next(claims.rare().named.entry(name.into()).or_default());
                path.push_str("n:");
                push_escaped(&mut path, name);
                if n > 0 {
                    let _ = write!(path, "#{n}");
                }
            }
        }
        drop(claims);
        Arc::new(Self {
            core: self.core.clone(),
            path: path.into(),
            claims: Mutex::default(),
        })
    }

    /// Claims the id of the next un-keyed call of a name, and says which occurrence it is.
    pub(crate) fn claim(&self, kind: CallKind, name: &'static str) -> (StepId, u64) {
        let mut claims = self.claims();
        let calls = &mut claims.calls;
        let occurrence = match calls.iter_mut().find(|(k, n, _)| *k == kind && *n == name) {
            Some((_, _, next)) => take_next(next),
            None => {
                if calls.len() < FEW_NAMES {
                    calls.reserve_exact(1); // most scopes call one or two names only
                }
                calls.push((kind, name, 1));
                0
            }
        };
        let place = match seeded!(SharedStepId) && kind == CallKind::Step {
            true => 0,
            false => occurrence,
        };
        if occurrence == 0 {
            drop(claims);
            let id = self.derive(kind, name, Discriminator::Occurrence(place));
            return (id, occurrence);
        }
        let scope = self.path.as_bytes();
        let make = || CallIds::new(self.core.run(), scope, kind, name);
        let mut ids = claims.rare().repeated(kind, name, make);
        let id = self.core.call_id(|run| match &mut ids {
            Some(ids) if ids.run() == run => ids.id(place),
            _ => StepId::derive(run, scope, kind, name, Discriminator::Occurrence(place)),
        });
        (id, occurrence)
    }

    /// Claims the place of the next message to an outbox, as the id of a call.
    pub(crate) fn claim_message(&self, outbox: &str) -> StepId {
        let number = {
            let mut claims = self.claims();
            let messages = &mut claims.rare().messages;
            match messages.get_mut(outbox) {
                Some(next) => take_next(next),
                None => {
                    messages.insert(outbox.into(), 1);
                    0
                }
            }
        };
        self.derive(CallKind::Message, outbox, Discriminator::Occurrence(number))
    }

    /// Gives an occurrence back, because the call chose a key instead. If others of the name
    /// were made since, it stays taken: giving it back would make two ids equal.
    pub(crate) fn unclaim(&self, kind: CallKind, name: &'static str, occurrence: u64) {
        let mut claims = self.claims();
        if let Some((_, _, next)) = claims
            .calls
            .iter_mut()
            .find(|(k, n, next)| *k == kind && *n == name && *next == occurrence + 1)
        {
            *next = occurrence;
        }
    }

    /// Claims the id of a keyed call, or names the place that has the key already.
    pub(crate) fn claim_key(
        &self,
        kind: CallKind,
        name: &'static str,
        key: &str,
        site: &'static Location<'static>,
    ) -> Result<StepId, &'static Location<'static>> {
        let id = self.derive(kind, name, Discriminator::Key(key));
        match self.claims().rare().keyed.entry(id) {
            Entry::Vacant(free) => {
                free.insert(site);
                Ok(id)
            }
            Entry::Occupied(first) => Err(*first.get()),
        }
    }

    /// Gives a key back, because the call chose another one.
    pub(crate) fn unclaim_key(&self, id: StepId) {
        self.claims().rare().keyed.remove(&id);
    }

    fn derive(&self, kind: CallKind, name: &str, which: Discriminator<'_>) -> StepId {
        let scope = self.path.as_bytes();
        self.core
            .call_id(|run| StepId::derive(run, scope, kind, name, which))
    }

    /// Reads the next bytes of this scope's random stream.
    pub(crate) fn random(&self, bytes: &mut [u8]) {
        let position = {
            let mut claims = self.claims();
            let position = claims.random_position;
            claims.random_position += bytes.len() as u64;
            position
        };
        let mut stream = random_stream(self.core.ambient_run(), self.path.as_bytes());
        stream.set_position(position);
        stream.fill(bytes);
    }
}

fn take_next(counter: &mut u64) -> u64 {
    let n = *counter;
    *counter += 1;
    n
}

/// Keeps a user's name from imitating the path's own punctuation.
fn push_escaped(path: &mut String, name: &str) {
    for c in name.chars() {
        match c {
            '/' => path.push_str("%2F"),
            '#' => path.push_str("%23"),
            '%' => path.push_str("%25"),
            c => path.push(c),
        }
    }
}

pin_project! {
    /// A future whose calls are claimed in a scope of their own.
    pub struct Scoped<F> {
        scope: Option<Arc<Scope>>,
        #[pin]
        future: F,
    }
}

impl<F> Scoped<F> {
    /// Opens a scope now, in the scope that is current; outside a workflow this opens none.
    pub(crate) fn open(element: ScopeElement<'_>, future: F) -> Self {
        Self {
            scope: current_scope().map(|parent| parent.child(element)),
            future,
        }
    }
}

impl<F: Future> Future for Scoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _entered = reenter(this.scope.as_ref());
        this.future.poll(cx)
    }
}

/// Enters a scope for one poll, unless the future was carried to where no workflow of that
/// run is polled: there its calls are to find themselves outside.
fn reenter(scope: Option<&Arc<Scope>>) -> Option<super::Entered> {
    let scope = scope?;
    let here = current_scope()?;
    Arc::ptr_eq(here.core(), scope.core()).then(|| enter(Ambient::Workflow(scope.clone())))
}

pin_project! {
    /// The body of an async closure: its scope is claimed when it is first polled.
    pub struct ClosureScoped<F> {
        scope: Option<Arc<Scope>>,
        #[pin]
        future: F,
    }
}

impl<F> ClosureScoped<F> {
    pub(crate) fn new(future: F) -> Self {
        Self {
            scope: None,
            future,
        }
    }
}

impl<F: Future> Future for ClosureScoped<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if this.scope.is_none() {
            *this.scope = current_scope().map(|parent| parent.child(ScopeElement::Closure));
        }
        let _entered = reenter(this.scope.as_ref());
        this.future.poll(cx)
    }
}

/// Runs a future in a scope with a name of its own.
///
/// The ids of the calls inside depend on the name instead of on how many `async` blocks stand
/// before it, so that code can be added in front without moving them. It takes a closure,
/// because the future has to be *made* inside the scope. A name that is used again in the same
/// scope counts up.
///
/// ```
/// # use workflow_runtime::{scope, step, workflow, Result};
/// # #[step] async fn reserve(_item: &str) -> Result<u32> { Ok(1) }
/// #[workflow]
/// async fn order(item: String) -> Result<u32> {
///     scope("stock", || async { reserve(&item).await }).await
/// }
/// ```
pub fn scope<F: Future>(name: &str, make: impl FnOnce() -> F) -> Scoped<F> {
    let scope = current_scope().map(|parent| parent.child(ScopeElement::Named(name)));
    let future = {
        let _entered = reenter(scope.as_ref());
        make()
    };
    Scoped { scope, future }
}
