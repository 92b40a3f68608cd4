//! `.key` names a call by what it is about instead of by its place.

use std::collections::HashSet;
use std::time::Duration;

use futures::join;
use workflow_runtime::{
    Engine, Result, RunError, StepId, get_step_metadata, scope, step, workflow,
};
use workflow_tests::steps;

#[step]
async fn pay(item: &str) -> Result<StepId> {
    let _ = item;
    Ok(get_step_metadata().step_id)
}

#[workflow]
async fn keyed(order: Vec<String>) -> Result<Vec<(String, StepId)>> {
    let mut ids = vec![("first".to_owned(), pay("x").await?)];
    for item in order {
        let id = pay(&item).key(&item).await?;
        ids.push((item, id));
    }
    ids.push(("second".to_owned(), pay("y").await?));
    ids.sort();
    Ok(ids)
}

#[tokio::test]
async fn a_key_replaces_the_occurrence_and_shifts_no_other_call() {
    let engine = |n: &'static str| async move {
        Engine::builder()
            .namespace(n)
            .register::<keyed>()
            .open_in_memory()
            .await
            .expect("opens")
    };
    let mut seen = Vec::new();
    for order in [vec!["a", "b", "c"], vec!["c", "a", "b"], vec![]] {
        let order = order.into_iter().map(str::to_owned).collect();
        let engine = engine("n").await;
        let run = engine.start(keyed(order)).key("k").await;
        seen.push(run.expect("starts").result().await);
    }
    let [forwards, backwards, none] = seen.map_items();
    assert_eq!(forwards, backwards);
    let unkeyed = |ids: &[(String, StepId)]| -> Vec<_> {
        let mut ids = ids.to_vec();
        ids.retain(|(name, _)| name.len() > 1);
        ids
    };
    assert_eq!(unkeyed(&forwards), unkeyed(&none));
}

trait MapItems<T> {
    fn map_items(self) -> [T; 3];
}

impl<T, E: std::fmt::Debug> MapItems<T> for Vec<Result<T, E>> {
    fn map_items(self) -> [T; 3] {
        let items: Vec<T> = self
            .into_iter()
            .map(|item| item.expect("ends well"))
            .collect();
        items.try_into().unwrap_or_else(|_| panic!("three"))
    }
}

#[workflow]
async fn keyed_late() -> Result<Vec<StepId>> {
    let first = pay("first");
    let second = pay("second");
    let first = first.key("late");
    let third = pay("third");
    let (a, b, c) = join!(first, second, third);
    Ok(vec![a?, b?, c?])
}

#[tokio::test]
async fn a_key_given_after_other_calls_were_made_never_makes_two_ids_equal() {
    let engine = Engine::builder()
        .register::<keyed_late>()
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(keyed_late()).await.expect("starts");
    let ids = tokio::time::timeout(Duration::from_secs(2), run.result())
        .await
        .expect("two calls share an id and one waits for ever")
        .expect("ends well");
    let unique: HashSet<_> = ids.iter().collect();
    assert_eq!(unique.len(), 3, "{ids:?}");
}

#[step(key = item)]
async fn pay_by_item(item: &str) -> Result<StepId> {
    let _ = item;
    Ok(get_step_metadata().step_id)
}

#[workflow]
async fn keyed_by_attribute() -> Result<Vec<StepId>> {
    let one = pay_by_item("same").key("one").await?;
    let two = pay_by_item("same").key("two").await?;
    let same = pay_by_item("same").await?;
    Ok(vec![one, two, same])
}

#[tokio::test]
async fn a_key_of_the_call_replaces_that_of_the_attribute() {
    let engine = Engine::builder()
        .register::<keyed_by_attribute>()
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(keyed_by_attribute()).await.expect("starts");
    let ids = run.result().await.expect("each call has its own key");
    let unique: HashSet<_> = ids.iter().collect();
    assert_eq!(unique.len(), 3, "{ids:?}");
}

#[workflow]
async fn repeated_key() -> Result<()> {
    pay("a").key("same").await?;
    scope("elsewhere", || async { pay("b").key("same").await }).await?;
    pay("c").key("same").await?;
    Ok(())
}

#[tokio::test]
async fn a_repeated_key_in_one_scope_fails_the_run_and_names_both_lines() {
    let engine = Engine::builder()
        .register::<repeated_key>()
        .open_in_memory()
        .await
        .expect("opens");
    let run = engine.start(repeated_key()).await.expect("starts");
    let error = run.result().await.expect_err("fails");
    let RunError::Broken(error) = error else {
        panic!("{error:?}");
    };
    let text = error.to_string();
    assert!(text.contains("\"same\" twice"), "{text}");
    let first = steps(&engine.journal(run.id()).await.expect("reads"))[0]
        .source
        .clone();
    assert!(text.contains(&*first), "{text} names {first}");
    let (file, line) = first.rsplit_once(':').expect("file:line");
    let third = format!("{file}:{}", line.parse::<u32>().expect("a line") + 2);
    assert!(text.contains(&third), "{text} names {third}");
}
