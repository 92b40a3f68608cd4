//! The audit as an assertion.

use crate::audit::Audit;
use crate::call::Workflow;

/// Fails the test if the audit of a workflow, and of the child workflows it calls, has an error or a
/// warning that nobody has given a reason for.
///
/// ```no_run
/// # use workflow_runtime::{Result, step, workflow};
/// # #[step(effect = "read")] async fn look() -> Result<u32> { Ok(1) }
/// # #[workflow] async fn checkout() -> Result<u32> { look().await }
/// #[test]
/// fn checkout_does_nothing_twice() {
///     workflow_runtime::testing::assert_audit_clean::<checkout>();
/// }
/// ```
///
/// # Panics
///
/// With the whole audit, if it is not clean.
#[track_caller]
pub fn assert_audit_clean<W: Workflow>() {
    let audit = Audit::of::<W>();
    let open = audit.open().count();
    assert!(
        open == 0,
        "workflow `{}` has {} to settle; fix the step, or say why it is right with \
         `#[step(audit = \"…\")]`\n\n{audit}",
        W::DEFINITION.name,
        match open {
            1 => "1 finding".to_owned(),
            n => format!("{n} findings"),
        },
    );
}
