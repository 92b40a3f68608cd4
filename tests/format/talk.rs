//! The workflows whose journals are the fixtures of talking. Their lines are in the journals: add nothing above.

use workflow_runtime::{Error, Result, hook, publish, start_child, wait_for, workflow};

#[workflow(name = "format child")]
pub(super) async fn child(weight: u32) -> Result<u32> {
    match weight {
        0 => Err(Error::fatal("nothing to carry")),
        weight => Ok(weight * 2),
    }
}

#[workflow(name = "format talk")]
pub(super) async fn talk() -> Result<u32> {
    let start = wait_for::<u32>("start").await?;
    let mut callback = hook::<u32>("callback-7").await?;
    let called = callback.next().await?;
    let carried = child(start + called).await?;
    let refused = async { child(0).key("nothing").detached().await };
    if refused.await.is_ok() {
        return Err(Error::fatal("cannot be"));
    }
    callback.close().await?;
    Ok(carried)
}

#[workflow(name = "format waiting")]
pub(super) async fn waiting() -> Result<u32> {
    let child = start_child(endless());
    wait_for::<()>("never").await?;
    child.await
}

#[workflow(name = "format endless")]
pub(super) async fn endless() -> Result<u32> {
    wait_for("never").await
}

#[workflow(name = "format parked")]
pub(super) async fn parked() -> Result<()> {
    panic!("on purpose")
}

#[workflow(name = "format notes")]
pub(super) async fn notes() -> Result<()> {
    let _callback = hook::<u32>("callback-8").await?;
    publish("progress", &3);
    wait_for::<()>("seen").await?;
    wait_for::<()>("never").await
}
