//! Errors are outcomes too, also behind an alias.

use workflow_runtime::step;

struct Failure;
type Outcome<T> = Result<T, Failure>;

#[step]
async fn charge(cents: u64) -> Outcome<u64> {
    Ok(cents)
}

fn main() {}
