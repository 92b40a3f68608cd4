//! Which options of `#[step]` go together.
//!
//! Owns the rules between options, each with its reason in the message it gives:
//!
//! - `at_most_once` has one attempt: no `max_attempts`, `backoff` or `retry_if`; it records an intent
//!   already: no `intent`; it must not be lost with the power: no `durability = "buffered"`; it is
//!   never run again: no `fresh_for` that reruns;
//! - `on_stale` says what to do about `fresh_for`;
//! - an outcome that is too old is thrown away and asked for again only where that does nothing
//!   to the world: `effect = "read"`.

use crate::args::StepOptions;
use crate::diagnostics::{Diagnostics, Place};

/// Checks the options of one `#[step]` against each other.
pub(crate) fn check(options: &StepOptions, diagnostics: &Diagnostics) {
    if options.at_most_once {
        at_most_once(options, diagnostics);
    }
    freshness(options, diagnostics);
}

fn at_most_once(options: &StepOptions, diagnostics: &Diagnostics) {
    let again = "such a step has one attempt and is never tried again";
    let buffered = options.durability == Some("Buffered");
    let refused = [
        ("max_attempts", true, again),
        ("backoff", true, again),
        ("retry_if", true, again),
        ("intent", true, "such a step records its intent already"),
        (
            "durability",
            buffered,
            "lost with the power, what is recorded of such a step could not keep it from running again",
        ),
    ];
    for (name, applies, reason) in refused {
        if let Some(given) = options.given(name).filter(|_| applies) {
            let message = format!(
                "`{name}` and `at_most_once` do not go together: {reason}; remove one of the two"
            );
            diagnostics.on(Place::Inside, given, message);
        }
    }
}

fn freshness(options: &StepOptions, diagnostics: &Diagnostics) {
    let Some(fresh_for) = options.given("fresh_for") else {
        if let Some(on_stale) = options.given("on_stale") {
            let message = "`on_stale` says what is done about an outcome that is too old, and nothing says when it is: add `fresh_for = \"30s\"`, or remove it";
            diagnostics.on(Place::Inside, on_stale, message);
        }
        return;
    };
    let reruns = options.on_stale != Some("Abort");
    if reruns && options.at_most_once {
        let message = "`fresh_for` runs a step again when its outcome is too old, and an `at_most_once` step is never run again: add `on_stale = \"abort\"`, or remove one of the two";
        diagnostics.on(Place::Inside, fresh_for, message);
    } else if reruns && options.effect != Some("Read") {
        let message = "`fresh_for` runs a step again, under its id, when its outcome is too old: that is harmless only for a step that changes nothing; say so with `effect = \"read\"`, or end the run instead with `on_stale = \"abort\"`";
        diagnostics.on(Place::Inside, fresh_for, message);
    }
}
