//! Hooks: signals by a token, for senders that do not know the run.
//!
//! Owns the futures that take and close a hook. Both are steps of the engine's own, so that what
//! became of them is in the journal and every replay agrees; what is sent to the token is a signal.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_core::Stream;
use serde::de::DeserializeOwned;

use super::attempt::Attempt;
use super::home::refuse_outside;
use super::returns::Probe;
use super::signals::Wait;
use super::step::{StepCall, step_call};
use super::{Announced, StepDefinition};
use crate::context::{Scope, current_scope};
use crate::engine::tokens;
use crate::error::Result;
use crate::shape::StepAbout;

/// Both are tried until the store has answered; what the store cannot answer stops the engine.
const TAKE: StepDefinition = definition("hook");
const CLOSE: StepDefinition = definition("close hook");

/// Where the engine's own steps are defined.
pub(crate) const OWN_STEPS: &str = file!();

const fn definition(name: &'static str) -> StepDefinition {
    StepDefinition {
        name,
        args: &["token"],
        max_attempts: Some(u32::MAX),
        backoff: None,
        timeout: None,
        undo: None,
        effect: None,
        announced: Announced::No,
        fresh_for: None,
        durability: None,
        module: module_path!(),
        about: StepAbout::new(&["&str"], "Result<()>"),
        file: OWN_STEPS,
        line: line!(),
    }
}

/// Takes a token, so that others can send this run values without knowing its id.
///
/// For callbacks: the token goes into the URL that is given to the other side, and whoever is called
/// back sends with [`Engine::signal_token`](crate::Engine::signal_token). Take the token before it is
/// given away: what is sent to a token that no run holds is refused.
///
/// A token belongs to one run of a namespace at a time. The run has it until it
/// [closes](Hook::close) the hook or ends, however it ends; dropping the [`Hook`] lets nothing go.
/// Taken again by the same run, it is the same line of values. If the future of this call is dropped
/// before it gave the hook, the run may hold the token all the same.
///
/// ```
/// use workflow_runtime::{Result, hook, step, workflow};
///
/// #[step]
/// async fn ask_to_pay(_callback: &str) -> Result<()> { Ok(()) }
///
/// #[workflow]
/// async fn checkout(order: u64) -> Result<u64> {
///     let token = format!("payment-{order}");
///     let mut payments = hook::<u64>(&token).await?;
///     ask_to_pay(&format!("https://shop.example/paid/{token}")).await?;
///     payments.next().await
/// }
/// ```
///
/// # Errors
///
/// Awaiting it fails if another unfinished run holds the token; the error names that run and its
/// workflow. So it does if the token is empty or longer than 256 bytes.
///
/// # Panics
///
/// Panics when polled outside a workflow.
#[track_caller]
pub fn hook<T: DeserializeOwned>(token: &str) -> TakeHook<T> {
    TakeHook {
        taking: TokenCall::new(&TAKE, token, |services, run, token| {
            Box::pin(tokens::take(services, run, token))
        }),
        _value: PhantomData,
    }
}

/// The future of [`hook`].
#[must_use = "no token is taken unless this is awaited"]
pub struct TakeHook<T> {
    taking: TokenCall,
    _value: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Future for TakeHook<T> {
    type Output = Result<Hook<T>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<Hook<T>>> {
        let taken = std::task::ready!(self.taking.poll(cx));
        let scope = self.taking.home();
        let TokenCall { token, site, .. } = &self.taking;
        Poll::Ready(taken.map(|()| {
            scope.core().hold_token(token);
            Hook {
                wait: Wait::made_in(&tokens::signal_name(token), site, Some(scope.clone())),
                token: token.clone(),
                _value: PhantomData,
            }
        }))
    }
}

/// A token that this run holds, and what is sent to it: see [`hook`].
///
/// A stream that never ends, like [`Signals`](crate::Signals).
pub struct Hook<T> {
    wait: Wait,
    token: Box<str>,
    _value: PhantomData<fn() -> T>,
}

impl<T> Hook<T> {
    /// The token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Lets go of the token: from here on it can be taken by others, and what is sent to it is not
    /// sent to this run. What was received and not taken stays for the next hook of this token in this
    /// run.
    #[track_caller]
    pub fn close(self) -> CloseHook {
        CloseHook {
            closing: TokenCall::new(&CLOSE, &self.token, |services, run, token| {
                Box::pin(tokens::let_go(services, run, token))
            }),
        }
    }
}

impl<T: DeserializeOwned> Hook<T> {
    /// Waits for the next value.
    ///
    /// # Errors
    ///
    /// If what was sent is not a `T`. It is used up all the same.
    pub async fn next(&mut self) -> Result<T> {
        std::future::poll_fn(|cx| self.wait.poll(cx)).await
    }
}

impl<T: DeserializeOwned> Stream for Hook<T> {
    type Item = Result<T>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        self.wait.poll(cx).map(Some)
    }
}

impl<T> fmt::Debug for Hook<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hook({:?})", self.token)
    }
}

/// The future of [`Hook::close`].
#[must_use = "the token is held unless this is awaited"]
pub struct CloseHook {
    closing: TokenCall,
}

impl Future for CloseHook {
    type Output = Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        // From here on another run may hold it at any moment: the end of this one must not take it away.
        let closing = &mut self.closing;
        closing.home().core().release_token(&closing.token);
        closing.poll(cx)
    }
}

type Outcome = Pin<Box<dyn Future<Output = Result<()>> + Send>>;
type Act = fn(Arc<crate::engine::Services>, crate::RunId, String) -> Outcome;

/// A step of the engine's own about one token.
struct TokenCall {
    call: StepCall<'static, Result<()>>,
    token: Box<str>,
    site: &'static Location<'static>,
    made_in: Option<Arc<Scope>>,
}

impl TokenCall {
    #[track_caller]
    fn new(definition: &'static StepDefinition, token: &str, act: Act) -> Self {
        let made_in = current_scope();
        let core = made_in.as_ref().map(|scope| scope.core().clone());
        let body = move |_: &Attempt, (token,): (String,)| {
            let core = core.clone();
            Ok(async move {
                match core {
                    Some(core) => act(core.services.clone(), core.run(), token).await,
                    None => std::future::pending().await, // it is never polled outside a workflow
                }
            })
        };
        let returns = Probe::<Result<()>>::new().returns();
        Self {
            call: step_call(definition, returns, None, (token.to_owned(),), body),
            token: token.into(),
            site: Location::caller(),
            made_in,
        }
    }

    fn home(&self) -> Arc<Scope> {
        self.made_in.clone().unwrap_or_else(|| {
            refuse_outside(
                format_args!("hook({:?}) at {}", self.token, self.site),
                "only runs have hooks; take it in the workflow",
            )
        })
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<()>> {
        self.home();
        Pin::new(&mut self.call).poll(cx)
    }
}
