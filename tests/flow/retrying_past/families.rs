//! Failures of children that the code of their parent has gone past, or has not.

use super::*;

#[workflow]
async fn store_front(what: String) -> Result<String> {
    shaky(&what).await
}

/// Goes to another shop if the first one fails.
#[workflow]
async fn shopping() -> Result<String> {
    match store_front("first".into()).await {
        Ok(first) => Ok(first),
        Err(_) => store_front("other".into()).await,
    }
}

#[tokio::test]
async fn of_a_child_and_its_fallback_that_both_failed_the_fallback_is_tried_again() {
    let scene = Scene::with_broken(&["first", "other"]);
    let engine = scene.builder::<shopping>().register::<store_front>();
    let engine = engine.open_with(scene.store.clone()).await.expect("opens");
    let run = engine.start(shopping()).await.expect("starts");
    fails(&run).await;
    let before = scene.took();
    scene.world.mend();
    run.retry().await.expect("is retried");
    assert_eq!(ends_well(&run).await, "other at last");
    assert_eq!(scene.took(), [before[2]], "the same key, and not the first");
    let page = engine.runs().workflow("store_front").await.expect("lists");
    assert_eq!(page.runs.len(), 2);
}

/// Waits for what never comes.
#[workflow]
async fn waits_for_ever() -> Result<String> {
    wait_for::<String>("never").await
}

/// Fails by one thing, while a race between another and a child was decided.
#[workflow]
async fn racing() -> Result<String> {
    let race = async {
        match select(Box::pin(tried("quick")), Box::pin(waits_for_ever())).await {
            Either::Left((quick, _)) => Ok(quick),
            Either::Right((child, _)) => child,
        }
    };
    let (early, race) = join!(shaky("early"), race);
    Ok(format!("{}, {}", early?, race?))
}

#[tokio::test]
async fn a_failure_stands_if_a_child_was_cancelled_because_of_it() {
    let scene = Scene::with_broken(&["early", "quick"]);
    let engine = scene.builder::<racing>().register::<waits_for_ever>();
    let engine = engine.open_with(scene.store.clone()).await.expect("opens");
    let run = engine.start(racing()).await.expect("starts");
    assert_eq!(fails(&run).await, "early is broken");
    scene.took();
    scene.world.mend();
    run.retry().await.expect("is retried");
    // Had the race gone on, it would have been won by a child that was cancelled.
    assert_eq!(ends_well(&run).await, "early at last, no quick");
    assert_eq!(tried_again(&engine, run.id()).await, ["early"]);
    assert_eq!(scene.took().len(), 1);
}

/// Cancels one child because the other one failed, and fails.
#[workflow]
async fn both_or_none() -> Result<String> {
    let both = futures::try_join!(store_front("shop".into()), waits_for_ever());
    both.map(|(shop, _)| shop)
}

#[tokio::test]
async fn a_parent_that_cancelled_a_child_when_it_failed_is_tried_again_and_gets_that_end() {
    let scene = Scene::with_broken(&["shop"]);
    let builder = scene.builder::<both_or_none>();
    let builder = builder
        .register::<store_front>()
        .register::<waits_for_ever>();
    let engine = builder.open_with(scene.store.clone()).await.expect("opens");
    let run = engine.start(both_or_none()).await.expect("starts");
    assert_eq!(fails(&run).await, "shop is broken");
    scene.world.mend();
    run.retry().await.expect("is retried");
    let failed = timeout(LONG, run.result()).await.expect("ends");
    let error = failed.expect_err("it has nothing else").to_string();
    assert!(error.contains("cancelled"), "{error}");
}

#[workflow]
async fn reporting_child() -> Result<String> {
    let done = shaky("reported").await;
    act("report").await?;
    done
}

/// Needs one of two.
#[workflow]
async fn one_is_enough() -> Result<String> {
    let (one, other) = join!(reporting_child(), store_front("shop".into()));
    other.or(one)
}

#[tokio::test]
async fn a_child_that_could_only_fail_again_gives_its_parent_the_same_end_again() {
    let scene = Scene::with_broken(&["reported", "shop"]);
    let builder = scene.builder::<one_is_enough>();
    let builder = builder
        .register::<reporting_child>()
        .register::<store_front>();
    let engine = builder.open_with(scene.store.clone()).await.expect("opens");
    let run = engine.start(one_is_enough()).await.expect("starts");
    fails(&run).await;
    scene.took();
    scene.world.mend();
    run.retry().await.expect("is retried");
    assert_eq!(ends_well(&run).await, "shop at last");
    assert_eq!(scene.took().len(), 1);
}
