//! What is asked of a step, one function per question. Each answer names the rule and the way out.
//!
//! | code | severity | rule |
//! |---|---|---|
//! | `unguarded-effect` | error | a step that changes something uses its step id, has an undo, or runs at most once |
//! | `unclassified-effect` | warning | a step says what it does to the world |
//! | `short-key-retention` | warning | a payment's run answers to its key for a day at least |
//! | `guarded-read` | warning | a step that only reads needs no undo and no single attempt |
//! | `buffered-effect` | warning | the outcome of a step that changes something survives a power cut |
//! | `not-in-shape` | warning | every step of a workflow is seen in its source |
//! | `undone-and-repeated` | note | an undo takes an effect back; it does not keep a second attempt from a second effect |
//! | `no-timeout` | note | a step that changes something does not wait for ever |

use std::time::Duration;

use super::{AuditedStep, EffectClass, Finding, Guard, KeyKept, Seen, Settings, Severity};
use crate::duration::short;
use crate::store::Durability;

/// For how long a payment's key has to answer: the time in which clients try again.
const PAYMENT_KEY_KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// A question: what it is called, how grave the answer is, and the answer if there is one.
type Rule = (
    &'static str,
    Severity,
    fn(&AuditedStep, &Settings) -> Option<String>,
);

/// All questions, the gravest first.
pub(super) const RULES: &[Rule] = &[
    ("unguarded-effect", Severity::Error, unguarded),
    ("unclassified-effect", Severity::Warning, unclassified),
    ("short-key-retention", Severity::Warning, short_key),
    ("guarded-read", Severity::Warning, guarded_read),
    ("buffered-effect", Severity::Warning, buffered),
    ("not-in-shape", Severity::Warning, not_in_shape),
    ("undone-and-repeated", Severity::Note, undone_and_repeated),
    ("no-timeout", Severity::Note, no_timeout),
];

/// Asks everything of one step.
pub(super) fn judge(step: &AuditedStep, settings: &Settings) -> Vec<Finding> {
    let found = RULES.iter().filter_map(|(code, severity, rule)| {
        Some(Finding {
            code,
            severity: *severity,
            definition: step.definition,
            text: rule(step, settings)?,
        })
    });
    found.collect()
}

fn is_guarded(step: &AuditedStep) -> bool {
    [Guard::StepId, Guard::Undo, Guard::AtMostOnce]
        .into_iter()
        .any(|guard| step.is_guarded_by(guard))
}

fn unguarded(step: &AuditedStep, _: &Settings) -> Option<String> {
    if !step.is_effectful() || is_guarded(step) {
        return None;
    }
    let key = match step.is_guarded_by(Guard::BusinessKey) {
        true => " (its business key names the call in the journal; the body does not hand it on)",
        false => "",
    };
    let reads = match step.effect() {
        None => "; if it only reads, say `effect = \"read\"`",
        Some(_) => "",
    };
    Some(format!(
        "after a crash or a failed attempt it runs again, and nothing keeps it from doing its work \
         twice{key}: give `get_step_metadata().step_id` to the other side as its idempotency key, or \
         name the step that takes it back (`undo = …`), or have it run `at_most_once`{reads}; if it is \
         safe by other means, say why with `audit = \"…\"`"
    ))
}

fn unclassified(step: &AuditedStep, _: &Settings) -> Option<String> {
    if step.effect().is_some() {
        return None;
    }
    Some(
        "it does not say what it does to the world, so it counts as a change: add `effect = \"read\"`, \
         `\"create\"`, `\"update\"`, `\"payment\"` or `\"message\"`"
            .into(),
    )
}

fn short_key(step: &AuditedStep, _: &Settings) -> Option<String> {
    let KeyKept::For(kept) = step.key_kept else {
        return None;
    };
    if step.effect() != Some(EffectClass::Payment) || kept >= PAYMENT_KEY_KEPT {
        return None;
    }
    Some(format!(
        "it moves money, and the key of its run is forgotten {} after the run ended: a client that \
         tries again later starts a second run, which pays again; keep it for {} at least",
        short(kept),
        short(PAYMENT_KEY_KEPT)
    ))
}

fn guarded_read(step: &AuditedStep, _: &Settings) -> Option<String> {
    let undo = step.is_guarded_by(Guard::Undo);
    let once = step.is_guarded_by(Guard::AtMostOnce);
    if step.is_effectful() || !(undo || once) {
        return None;
    }
    let guard = if undo { "an undo" } else { "`at_most_once`" };
    Some(format!(
        "it says that it only reads, and has {guard}: if it changes something, say so with `effect`; \
         if not, remove {guard}"
    ))
}

fn buffered(step: &AuditedStep, settings: &Settings) -> Option<String> {
    let lost = step.durability(settings) == Some(Durability::Buffered);
    if !lost || !step.is_effectful() || step.is_guarded_by(Guard::StepId) {
        return None;
    }
    Some(
        "its outcome is only buffered: a power cut may lose it, and then the step runs again although \
         it had finished; remove `durability = \"buffered\"` (or say `\"synced\"` in an engine that \
         buffers), or give its step id to the other side"
            .into(),
    )
}

fn not_in_shape(step: &AuditedStep, _: &Settings) -> Option<String> {
    if step.seen == Seen::InShape {
        return None;
    }
    Some(
        "it ran, but the source of no registered workflow was seen to call it, so an audit without this \
         run does not know of it: call it by its name, from a `#[workflow]` or a `#[workflow(inline)]` \
         helper, and define it outside functions"
            .into(),
    )
}

fn undone_and_repeated(step: &AuditedStep, settings: &Settings) -> Option<String> {
    let attempts = step.definition.max_attempts.or(settings.max_attempts);
    let only_undo = step.is_guarded_by(Guard::Undo) && !step.is_guarded_by(Guard::StepId);
    if !step.is_effectful() || !only_undo || step.at_most_once() || attempts == Some(1) {
        return None;
    }
    Some(
        "its undo takes back what it did if the run does not complete; a second attempt of its own may \
         still do it a second time in a run that completes: give its step id to the other side too"
            .into(),
    )
}

fn no_timeout(step: &AuditedStep, _: &Settings) -> Option<String> {
    if !step.is_effectful() || step.definition.timeout.is_some() {
        return None;
    }
    Some("an answer that never comes is waited for without end: add `timeout = \"…\"`".into())
}
