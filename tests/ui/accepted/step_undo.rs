//! The forms of `undo`.

use workflow_runtime::{Result, step, undo_with, workflow};

mod refunds {
    use workflow_runtime::{Result, step};

    #[step]
    pub async fn refund(customer: String, cents: u64, receipt: Option<u32>) -> Result<()> {
        let _ = (customer, cents, receipt);
        Ok(())
    }
}

#[step(undo = refunds::refund, max_attempts = 2)]
async fn charge(#[resource] payments: &u8, customer: &str, cents: u64) -> Result<u32> {
    let _ = (payments, customer, cents);
    Ok(1)
}

#[step(undo = unlist)]
async fn list<'a>(names: &'a [String], note: Option<&'a str>) -> u32 {
    let _ = (names, note);
    1
}

#[step]
async fn unlist(names: Vec<String>, note: Option<String>, listed: Option<u32>) {
    let _ = (names, note, listed);
}

#[step(blocking, undo = close)]
fn open() -> Result<u32, String> {
    Ok(1)
}

#[step(blocking)]
fn close(opened: Option<u32>) -> Result<(), String> {
    let _ = opened;
    Ok(())
}

#[step]
async fn release<T: serde::Serialize + Clone + Send + 'static>(what: T) -> Result<()> {
    let _ = what;
    Ok(())
}

#[workflow]
async fn shop(names: Vec<String>) -> Result<u32> {
    charge("ada", 5).await?;
    list(&names, None).await;
    let _ = open().await;
    undo_with(release(names).max_attempts(3));
    Ok(1)
}

fn main() {
    let _ = shop;
}
