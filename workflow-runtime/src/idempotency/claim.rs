//! A key that is asked for, and one that is held.
//!
//! Owns how a caller waits for a key in flight, and that a key which is held is extended while its work goes on
//! and freed when that fails, panics or is dropped. Never knows what the work is.

use std::pin::pin;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    Busy, Completion, Done, KeyError, KeyResult, KeyStore, OwnerId, Reservation, Reserve, Ticket,
};
use crate::clock::{Timestamp, wall_clock};
use crate::digest::Digest;

/// The shortest lease: below it a busy machine would lose its own claims.
pub(crate) const MIN_LEASE: Duration = Duration::from_millis(100);

/// How many signs of life fit into a lease: two may be lost.
const BEATS: u32 = 3;

/// What a caller does while another one has its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum InFlight {
    /// Waits for that one's outcome, however long it takes. If it fails or dies, this one runs.
    #[default]
    Wait,
    /// Waits, but not for longer than this; then it is refused.
    WaitAtMost(Duration),
    /// Is refused at once.
    Refuse,
}

/// What a caller was given.
pub(crate) enum Acquired {
    /// The key: the work is to run.
    Mine(Ticket),
    /// The outcome.
    Done(Done),
    /// Nothing: another one has it.
    Busy(Busy),
    /// Nothing: it is used for another body.
    OtherBody { first: Digest, since: Timestamp },
}

/// Asks for a key until there is an answer.
pub(crate) async fn acquire(
    keys: &dyn KeyStore,
    request: Reserve,
    in_flight: InFlight,
) -> KeyResult<Acquired> {
    let patience_ends = match in_flight {
        InFlight::Wait => None,
        InFlight::WaitAtMost(patience) => Instant::now().checked_add(patience),
        InFlight::Refuse => Some(Instant::now()),
    };
    loop {
        let busy = match keys.reserve(request).await? {
            Reservation::New(ticket) => return Ok(Acquired::Mine(ticket)),
            Reservation::Done(done) => return Ok(Acquired::Done(done)),
            Reservation::OtherBody { first, since } => {
                return Ok(Acquired::OtherBody { first, since });
            }
            Reservation::InFlight(busy) => busy,
        };
        // The store's clock may not be this one: the claim ends no later than a whole lease from now.
        let lease = busy.until.since(wall_clock());
        let lease = lease.min(busy.until.since(busy.since));
        let patience = match patience_ends {
            Some(end) if end <= Instant::now() => return Ok(Acquired::Busy(busy)),
            Some(end) => lease.min(end - Instant::now()),
            None => lease,
        };
        // A lease that is over by this clock may not be by the store's: never spin.
        let patience = patience.max(Duration::from_millis(1));
        keys.changed(request.key, patience).await;
    }
}

/// A key that is held. Dropped without an outcome, it is free again.
pub(crate) struct Claim<'k> {
    keys: &'k dyn KeyStore,
    ticket: Option<Ticket>,
    lease: Duration,
}

impl<'k> Claim<'k> {
    pub(crate) fn new(keys: &'k dyn KeyStore, ticket: Ticket, lease: Duration) -> Self {
        Self {
            keys,
            ticket: Some(ticket),
            lease,
        }
    }

    /// Does the work, and shows signs of life meanwhile.
    pub(crate) async fn during<F: Future>(&self, work: F) -> F::Output {
        let ticket = self.ticket.expect("it is taken out only at the end");
        let mut work = pin!(work);
        loop {
            let beat = tokio::time::sleep(self.lease / BEATS);
            tokio::select! {
                biased;
                output = &mut work => return output,
                () = beat => {}
            }
            // Extending must not hold the work up.
            let mut extending = pin!(self.keys.extend(&ticket, self.lease));
            let extended = tokio::select! {
                biased;
                output = &mut work => return output,
                extended = &mut extending => extended,
            };
            match extended {
                Ok(true) => {}
                // What runs cannot be taken back; its outcome may be refused.
                Ok(false) => {
                    tracing::warn!(key = %ticket.key, "a claim was lost while its work goes on")
                }
                Err(error) => tracing::warn!(%error, "a claim could not be extended"),
            }
        }
    }

    /// Records the outcome. `Refused`: somebody else has the key, or had it since.
    pub(crate) async fn complete(
        mut self,
        outcome: Bytes,
        ttl: Duration,
    ) -> Result<Completion, KeyError> {
        let ticket = self.ticket.expect("it is taken out only at the end");
        let completion = self.keys.complete(&ticket, outcome, ttl).await?;
        self.ticket = None;
        Ok(completion)
    }

    /// Frees the key, and waits for that.
    pub(crate) async fn release(mut self) {
        if let Some(ticket) = self.ticket
            && let Err(error) = self.keys.release(&ticket).await
        {
            tracing::warn!(%error, "a key could not be released: it is free when its lease ends");
        }
        self.ticket = None;
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.keys.abandon(ticket);
        }
    }
}

/// Asks for the key of an outcome that exists already, because its claim was lost before it could be recorded, until one
/// is on record: this one, or another's.
pub(crate) async fn record_late(
    keys: &dyn KeyStore,
    request: Reserve,
    outcome: Bytes,
    ttl: Duration,
) -> KeyResult<Recorded> {
    loop {
        let request = Reserve {
            owner: OwnerId::next(),
            ..request
        };
        match acquire(keys, request, InFlight::Wait).await? {
            Acquired::Done(done) => return Ok(Recorded::Other(done)),
            // Another body has taken the key since: what was done here stays without a record.
            Acquired::OtherBody { .. } | Acquired::Busy(_) => return Ok(Recorded::Never),
            Acquired::Mine(ticket) => {
                let claim = Claim::new(keys, ticket, request.lease);
                if claim.complete(outcome.clone(), ttl).await? == Completion::Recorded {
                    return Ok(Recorded::Own);
                }
            }
        }
    }
}

/// Whose outcome is on record.
pub(crate) enum Recorded {
    /// The caller's own.
    Own,
    /// That of somebody else.
    Other(Done),
    /// Nobody's: the key is used for another body by now.
    Never,
}
