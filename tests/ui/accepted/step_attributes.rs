//! Attributes go where they mean something.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::{step, workflow};

/// Charges a customer.
///
/// Twice, if asked.
#[step]
#[must_use]
#[inline]
#[cfg(all())]
#[cfg_attr(all(), allow(clippy::unused_async))]
#[rustfmt::skip]
#[expect(unused_variables, reason = "the attribute reaches the body")]
pub async fn charge(unused: u64) {}

#[step]
#[cfg(any())]
async fn absent(nothing: Missing) -> Missing {}

#[step]
#[deprecated = "use `charge`"]
#[allow(non_snake_case)]
pub async fn Old(#[allow(unused_variables)] NAME: u64) {}

/// Runs.
#[workflow]
#[expect(unused_variables, unused_mut, reason = "the attribute reaches the body")]
#[track_caller]
pub async fn run(mut unused: u64) {}

/// Ran.
#[workflow]
#[deprecated = "use `run`"]
pub async fn ran() {}

#[workflow]
#[cfg(any())]
async fn gone(nothing: Missing) -> Missing {}

#[allow(deprecated)]

fn main() {
    let _calls = || (charge(1), Old(1), run(1), ran());
}
