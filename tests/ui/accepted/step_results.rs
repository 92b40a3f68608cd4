//! Whether a step can fail is read from its type, whatever it is called.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::{step, workflow};

use serde::{Deserialize, Serialize};

use workflow_runtime::Result as OurResult;

#[derive(Serialize, Deserialize)]
enum Failure {
    Declined,
}
type Outcome<T> = std::result::Result<T, Failure>;
type Fixed = Outcome<u64>;

#[step(retry_if = worth_it)]
async fn aliased(cents: u64) -> Fixed {
    if cents == 0 { Err(Failure::Declined) } else { Ok(cents) }
}

fn worth_it(failure: &Failure) -> bool {
    !matches!(failure, Failure::Declined)
}

#[step]
async fn ours(text: &str) -> OurResult<u64> {
    Ok(text.parse::<u64>()?)
}

#[step]
async fn plain(text: String) -> (u8, Option<String>) {
    (1, Some(text))
}

#[workflow]
async fn all() -> OurResult<u64> {
    let cents = aliased(1).await.unwrap_or(0);
    let (one, _) = plain(String::new()).await;
    Ok(ours("1").await? + cents + u64::from(one))
}

fn main() {
    let _call = || all();
}
