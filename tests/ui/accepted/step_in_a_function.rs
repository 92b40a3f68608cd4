//! Steps and workflows inside functions.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::{step, workflow};

fn main() {
    #[step]
    async fn charge(cents: u64) -> u64 {
        cents
    }

    #[workflow]
    async fn checkout(cents: u64) -> u64 {
        #[step]
        async fn nested(cents: u64) -> u64 {
            async { cents }.await
        }
        charge(cents).await + nested(cents).await
    }

    let _call = || checkout(1);
    assert_eq!((charge::NAME, checkout::NAME), ("charge", "checkout"));
}

