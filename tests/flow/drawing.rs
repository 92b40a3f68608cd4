//! The picture of a workflow, from its source.

use std::time::Duration;

use futures::join;
use workflow_runtime::{Diagram, Result, sleep, step, workflow};

#[step(effect = "payment", max_attempts = 5, timeout = "90s", undo = refund)]
async fn charge(_cents: u64) -> Result<()> {
    Ok(())
}

#[step]
async fn refund(_cents: u64, _done: Option<()>) -> Result<()> {
    Ok(())
}

#[step(at_most_once, effect = "message")]
async fn mail(_text: &str) -> Result<()> {
    Ok(())
}

#[step(effect = "read")]
async fn find(_item: u64) -> Result<Option<u64>> {
    Ok(None)
}

#[workflow]
async fn accounting(cents: u64) -> Result<u64> {
    Ok(cents)
}

#[workflow(inline)]
async fn remind(times: u64) -> Result<()> {
    for _ in 0..times {
        sleep(Duration::from_millis(1)).await;
        mail("pay").await?;
    }
    Ok(())
}

fn plain(cents: u64) -> bool {
    cents > 1
}

#[workflow(name = "the \"order\"")]
async fn order(items: Vec<u64>, cents: u64) -> Result<()> {
    for item in &items {
        let Some(found) = find(*item).await? else {
            mail("gone").await?;
            continue;
        };
        if plain(found) && cents < 1_000 {
            charge(cents).await?;
        }
    }
    match cents {
        0 => remind(3).await?,
        1..=9 => mail("cheap").await?,
        _ => {}
    }
    let (_, mailed) = join!(accounting(cents), async { mail("bye").await });
    mailed
}

#[test]
fn a_workflow_is_drawn_for_mermaid() {
    insta::assert_snapshot!(order::diagram().mermaid());
}

#[test]
fn a_workflow_is_drawn_for_graphviz() {
    insta::assert_snapshot!(Diagram::of::<order>().dot());
}

/// The example of the chapter.
mod chapter {
    use super::*;

    #[step(effect = "create", undo = release)]
    async fn reserve(_item: u64) -> Result<()> {
        Ok(())
    }

    #[step]
    async fn release(_item: u64, _done: Option<()>) -> Result<()> {
        Ok(())
    }

    #[step(effect = "payment", max_attempts = 5, timeout = "10s")]
    async fn charge(_cents: u64) -> Result<()> {
        Ok(())
    }

    #[workflow(name = "order of the chapter")]
    pub(super) async fn order(items: Vec<u64>, cents: u64) -> Result<()> {
        for item in &items {
            reserve(*item).await?;
        }
        if cents > 0 {
            charge(cents).await?;
        }
        let (booked, mailed) = join!(accounting(cents), async { mail("bye").await });
        booked.map_err(|error| workflow_runtime::Error::new(format!("{error:?}")))?;
        mailed
    }
}

#[test]
fn the_picture_in_the_book_is_the_one_that_is_drawn() {
    let drawn = chapter::order::diagram().mermaid();
    let book = include_str!("../../docs/diagram.md");
    assert!(book.contains(&format!("```mermaid\n{drawn}```")), "{drawn}");
}

#[test]
fn a_workflow_without_steps_goes_from_its_start_to_its_end() {
    assert_eq!(
        accounting::diagram().mermaid(),
        "flowchart TD\n    n0([\"start\"])\n    n1([\"end\"])\n    n0 --> n1\n"
    );
}

/// Calls itself: the picture ends there.
#[workflow(inline)]
async fn again(left: u64) -> Result<()> {
    mail("again").await?;
    if left > 0 {
        std::boxed::Box::pin(again(left - 1)).await?;
    }
    Ok(())
}

#[workflow]
async fn turning() -> Result<()> {
    again(2).await
}

#[test]
fn a_helper_that_calls_itself_is_drawn_once() {
    let mermaid = turning::diagram().mermaid();
    assert_eq!(mermaid.matches("mail").count(), 1, "{mermaid}");
    assert!(mermaid.contains("[[\"again again\"]]"), "{mermaid}");
}
