//! Time and chance as a workflow may use them: the same in every replay, and free.
//!
//! Owns `now`, `random` and `uuid`. None of them costs a record: the time is that of the last
//! delivered record, chance comes from a stream that is keyed by run and scope.

use std::sync::Arc;
use std::time::SystemTime;

use crate::context::{Scope, current_scope};

fn scope(what: &str, instead: &str) -> Arc<Scope> {
    current_scope().unwrap_or_else(|| {
        panic!("{what} was called outside a workflow: it is the same in every replay of a run, so it needs one; use `{instead}` here")
    })
}

/// Returns the workflow's time: that of the last outcome it was given.
///
/// The same in every replay, and constant until the next outcome.
///
/// # Panics
///
/// Panics outside a workflow: use `SystemTime::now()` there, in steps as well.
pub fn now() -> SystemTime {
    scope("now()", "SystemTime::now()").core().now().into()
}

/// Draws a random value, the same in every replay.
///
/// It is unpredictable to nobody who knows the run's id: use it to choose, not for secrets.
///
/// # Panics
///
/// Panics outside a workflow.
pub fn random<T: Random>() -> T {
    T::draw(&mut |bytes| scope("random()", "rand::random()").random(bytes))
}

/// Makes a UUID (version 4), the same in every replay.
///
/// # Panics
///
/// Panics outside a workflow.
pub fn uuid() -> uuid::Uuid {
    let mut bytes = [0; 16];
    scope("uuid()", "Uuid::new_v4()").random(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

/// Types that [`random`] can draw.
pub trait Random: sealed::Sealed + Sized {
    #[doc(hidden)]
    fn draw(fill: &mut dyn FnMut(&mut [u8])) -> Self;
}

mod sealed {
    #[expect(unnameable_types, reason = "that is what seals it")]
    pub trait Sealed {}
}

macro_rules! random_integers {
    ($($integer:ty),*) => {$(
        impl sealed::Sealed for $integer {}

        impl Random for $integer {
            fn draw(fill: &mut dyn FnMut(&mut [u8])) -> Self {
                let mut bytes = [0; size_of::<$integer>()];
                fill(&mut bytes);
                Self::from_le_bytes(bytes)
            }
        }
    )*};
}

random_integers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128);

impl sealed::Sealed for bool {}

impl Random for bool {
    fn draw(fill: &mut dyn FnMut(&mut [u8])) -> Self {
        u8::draw(fill) & 1 == 1
    }
}

impl sealed::Sealed for f64 {}

/// Between 0 and 1, never 1.
impl Random for f64 {
    fn draw(fill: &mut dyn FnMut(&mut [u8])) -> Self {
        // 53 bits are what an f64 holds exactly.
        (u64::draw(fill) >> 11) as f64 / (1u64 << 53) as f64
    }
}

impl<const N: usize> sealed::Sealed for [u8; N] {}

impl<const N: usize> Random for [u8; N] {
    fn draw(fill: &mut dyn FnMut(&mut [u8])) -> Self {
        let mut bytes = [0; N];
        fill(&mut bytes);
        bytes
    }
}
