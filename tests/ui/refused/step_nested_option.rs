//! `Some(None)` would come back as `None`.

use workflow_runtime::step;

#[step]
async fn find(id: u64) -> Result<Vec<Option<Option<String>>>, String> {
    let _ = id;
    Ok(vec![])
}

fn main() {}
