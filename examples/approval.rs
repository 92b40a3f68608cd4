//! An approval: ask, remind, give up. The answer comes back by a token that was given away, and what is
//! approved is paid by a child workflow.
//!
//! `cargo run --example approval`. Two expenses are asked for; somebody answers the first one only after
//! the reminder, and nobody ever answers the second.
#![expect(clippy::print_stdout, reason = "it shows what it does")]

use std::time::Duration;

use workflow_runtime::{
    Engine, Result, get_workflow_metadata, hook, publish, step, timeout, workflow,
};

/// Days, in this story.
const PATIENCE: Duration = Duration::from_millis(100);

/// How often somebody is reminded.
const REMINDERS: u32 = 2;

#[step]
async fn write_to_manager(text: &str) -> Result<()> {
    println!("to the manager: {text}");
    Ok(())
}

#[step]
async fn transfer(what: &str, euros: u32) -> Result<String> {
    println!("the bank pays {euros} for {what}");
    Ok(format!("{euros} paid for {what}"))
}

#[workflow]
async fn pay(what: String, euros: u32) -> Result<String> {
    transfer(&what, euros).await
}

#[workflow]
async fn expense(what: String, euros: u32) -> Result<String> {
    let token = format!("expense-{what}");
    let mut answers = hook::<bool>(&token).await?; // before anybody can answer
    let link = format!("https://expenses.example/answer/{token}");
    write_to_manager(&format!("may I spend {euros} on {what}? {link}")).await?;
    publish("state", "asked");
    for reminder in 1..=REMINDERS + 1 {
        // Both the wait and the limit are durable: the process may die and come back in between.
        match timeout(PATIENCE, answers.next()).await {
            Ok(Ok(true)) => return pay(what, euros).await,
            Ok(Ok(false)) => return Ok(format!("{what}: refused")),
            Ok(Err(unreadable)) => return Err(unreadable),
            Err(_elapsed) if reminder > REMINDERS => break,
            Err(_elapsed) => {
                write_to_manager(&format!("reminder {reminder}: {what}? {link}")).await?;
                publish("state", &format!("reminded {reminder}"));
            }
        }
    }
    let run = get_workflow_metadata().run_id;
    Ok(format!("{what}: nobody answered {run}"))
}

#[tokio::main]
async fn main() -> Result<()> {
    let engine = Engine::builder()
        .register::<expense>()
        .register::<pay>()
        .open_in_memory()
        .await?;
    let lunch = engine.start(expense("lunch".into(), 12)).await?;
    let yacht = engine.start(expense("yacht".into(), 1_200_000)).await?;

    let mut state = lunch.watch::<String>("state");
    while let Some(now) = state.changed().await? {
        println!("lunch is {now}");
        if now == "reminded 1" {
            // Whoever got the link knows the token, and nothing of runs.
            engine.signal_token("expense-lunch", &true).await?;
        }
    }
    println!("{}", lunch.result().await?);
    println!("{}", yacht.result().await?);
    println!("{}", engine.journal(lunch.id()).await?);
    engine.shutdown().await?;
    Ok(())
}
