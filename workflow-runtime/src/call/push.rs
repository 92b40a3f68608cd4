//! Pushing messages into an outbox, from a step or from the workflow itself.
//!
//! Owns what is refused and how a message is named. When it is written is the business of the record that it goes
//! with; who relays it, of `engine/outbox`.

use std::panic::Location;

use serde::Serialize;

use crate::context::{Ambient, with_current};
use crate::engine::letters::check_name;
use crate::engine::outbox::{MAX_MESSAGE, Pushed};
use crate::error::{Error, Result};
use crate::ids::{MessageId, StepId};
use crate::payload::{Payloads, Place};

/// Names an outbox to push messages into; see [`Outbox::push`].
pub fn outbox(name: &str) -> Outbox<'_> {
    Outbox { name }
}

/// An outbox, for the code of steps and workflows; see [`outbox`].
#[derive(Debug, Clone, Copy)]
#[must_use = "an outbox does nothing until something is pushed"]
pub struct Outbox<'a> {
    name: &'a str,
}

impl Outbox<'_> {
    /// Pushes a message, and returns the id under which it will be relayed.
    ///
    /// **In a step** the message is written in one write with the step's outcome, if the step succeeds: it is sent if and
    /// only if the workflow goes on from that. What failed attempts pushed is dropped, also that of the last
    /// one. **In a workflow** it is written with the run's next write, once, whatever is replayed.
    ///
    /// A message is relayed at least once, always under the same id: see
    /// [`OutboxHandle::relay`](crate::OutboxHandle::relay). Messages of one run to one outbox are relayed in the order
    /// of the run's journal.
    ///
    /// ```
    /// # use workflow_runtime::{Result, outbox, step, workflow};
    /// #[step]
    /// async fn ship(order: u64) -> Result<()> {
    ///     // … hand it to the carrier, then
    ///     outbox("mail").push(&format!("order {order} is on its way"))?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// A fatal error if the message cannot be encoded or takes more than 240 KiB, if the step has pushed more than 8
    /// MiB, or if the name is empty or longer than 256 bytes.
    ///
    /// # Panics
    ///
    /// Outside of steps and workflows: there is nothing that the message could be written with. Code that a step has
    /// moved to another task or thread is outside.
    #[track_caller]
    pub fn push<T: Serialize + ?Sized>(&self, message: &T) -> Result<MessageId> {
        let (outbox, site) = (self.name, Location::caller());
        let refuse = |error: Error| error.context(format!("outbox({outbox:?}).push() at {site}"));
        match with_current(Ambient::clone) {
            Ambient::Step(step) => {
                let id = step.step;
                let Some(run) = step.run() else {
                    // Run directly: there is no journal, and no outbox either.
                    let checked = encode(outbox, &Payloads::default(), message).map_err(refuse);
                    return checked.map(|_| MessageId::derive(id, outbox, 0));
                };
                let payloads = run.services.payloads.at(Place::message(run.run()));
                let payload = encode(outbox, &payloads, message).map_err(refuse)?;
                let namespace = &run.services.namespace;
                let pushed = step.pushed.push(
                    |number| Pushed::new(namespace, outbox, id, number, payload),
                    outbox,
                );
                pushed.map_err(refuse)
            }
            Ambient::Workflow(scope) => {
                let core = scope.core();
                let payloads = core.services.payloads.at(Place::message(core.run()));
                let payload = encode(outbox, &payloads, message).map_err(refuse)?;
                let call: StepId = scope.claim_message(outbox);
                let pushed = Pushed::new(&core.services.namespace, outbox, call, 0, payload);
                let id = pushed.id();
                core.push_message(call, pushed);
                Ok(id)
            }
            Ambient::Outside => panic!(
                "outbox({outbox:?}).push() at {site} was called outside a workflow and its steps: there is no outcome \
                 that the message could be written with; push it in the body of a #[step] or #[workflow] function, \
                 not in a task or thread that was spawned there"
            ),
        }
    }
}

fn encode<T: Serialize + ?Sized>(
    outbox: &str,
    payloads: &Payloads,
    message: &T,
) -> Result<bytes::Bytes> {
    check_name("outbox", outbox).map_err(Error::fatal)?;
    let payload = payloads.encode(message).map_err(Error::fatal)?;
    if payload.len() > MAX_MESSAGE {
        return Err(Error::fatal(format!(
            "the message takes {} bytes, and may take {MAX_MESSAGE}: push where the rest is kept",
            payload.len()
        )));
    }
    Ok(payload)
}
