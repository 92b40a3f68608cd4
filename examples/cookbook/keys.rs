//! Which key? By business id, by several parts, by content; and two effects of one step.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use workflow_runtime::testing::assert_audit_clean;
use workflow_runtime::{Engine, Key, Result, RunId, get_step_metadata, step, workflow};

use super::world::Service;

#[step(effect = "message", timeout = "30s")]
async fn greet(#[resource] outside: &Service, user: u64, text: &str) -> Result<()> {
    let id = get_step_metadata().step_id;
    outside.act(id, format!("mail to {user}: {text}"));
    // A second effect of the same step needs a key of its own, as stable as the first.
    outside.act(id.for_effect("crm"), format!("crm: {user} was written to"));
    Ok(())
}

#[workflow]
async fn write_to(user: u64, text: String) -> Result<()> {
    greet(user, &text).await
}

/// Starts under a key and gives the run, when it has ended.
async fn start(engine: &Engine, key: Key) -> Result<RunId> {
    let run = engine
        .start(write_to(7, "Welcome!".into()))
        .key(key)
        .await?;
    run.result().await?;
    Ok(run.id())
}

/// Parts that are joined by hand meet; keys that are made of parts never do.
fn parts_never_meet() {
    let joined = |user: &str, action: &str| format!("{user}-{action}");
    assert_eq!(
        joined("a-b", "c"),
        joined("a", "b-c"),
        "two things, one key"
    );
    assert_ne!(Key::of(("a-b", "c")), Key::of(("a", "b-c")));
    assert_ne!(Key::of(("a,b", "c")), Key::of(("a", "b,c")));
    assert_ne!(Key::business("a", "b:c"), Key::business("a:b", "c"));
    let kinds = [
        Key::from("order-7"),
        Key::business("order", 7),
        Key::of(("order", 7)),
        Key::hash(&("order", 7)),
    ];
    let texts: BTreeSet<_> = kinds.iter().map(Key::as_str).collect();
    assert_eq!(texts.len(), kinds.len());
}

/// The same content is the same key, in every order of a map's entries; other content is another.
fn content_is_what_counts() {
    let pairs = [("item", "book"), ("size", "a5"), ("paper", "thick")];
    let sorted: BTreeMap<_, _> = pairs.into_iter().collect();
    let unsorted: HashMap<_, _> = pairs.into_iter().rev().collect();
    assert_eq!(Key::hash(&sorted), Key::hash(&unsorted));
    assert_ne!(
        Key::hash(&("print", &sorted)),
        Key::hash(&("bind", &sorted))
    );
}

/// A key that must not be read by anybody is kept as a digest.
fn secrets_are_not_shown() {
    let card = || Key::business("card", "4111111111111111").secret();
    assert_eq!(card(), card());
    assert!(!card().to_string().contains("4111"));
}

/// Makes keys of all kinds and starts under them, twice each.
///
/// # Errors
///
/// If the engine fails.
pub async fn run() -> Result<String> {
    assert_audit_clean::<write_to>();
    parts_never_meet();
    content_is_what_counts();
    secrets_are_not_shown();

    let outside = Arc::new(Service::default());
    let builder = Engine::builder()
        .register::<write_to>()
        .resource_arc(outside.clone());
    let engine = builder.open_in_memory().await?;
    // The same user and the same text, and six intents: each is done, and each is done once.
    let intents = || {
        [
            Key::from("welcome-7"),
            Key::business("welcome", 7),
            Key::business("reminder", 7),
            Key::of(("user", 7, "welcome")),
            Key::hash(&("welcome", 7, "Welcome!")),
            Key::business("token", "s3cret").secret(),
        ]
    };
    let mut runs = BTreeSet::new();
    for key in intents().into_iter().chain(intents()) {
        runs.insert(start(&engine, key).await?);
    }
    assert_eq!(runs.len(), intents().len());
    assert_eq!(
        outside.ledger().len(),
        2 * intents().len(),
        "two effects each"
    );
    assert_eq!(
        outside.asked(),
        2 * intents().len(),
        "and nobody was asked twice"
    );
    engine.shutdown().await?;
    Ok(format!(
        "{} starts, {} runs",
        2 * intents().len(),
        runs.len()
    ))
}
