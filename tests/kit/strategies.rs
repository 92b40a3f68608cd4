//! `testing::strategies`: the properties of keys, payloads and headers that they are made for.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Request, StatusCode};
use axum::routing::post;
use proptest::prelude::*;
use tower_service::Service as _;
use workflow_runtime::idempotency::http::IdempotencyLayer;
use workflow_runtime::testing::strategies::{
    Payload, business_ids, header_values, hostile_text, key_parts, meeting_parts, payloads,
};
use workflow_runtime::testing::{TestEngine, crash_everywhere};
use workflow_runtime::{Engine, EngineError, Key, Result, step, workflow};

/// Runs a property in a runtime of its own.
fn block_on<T>(property: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.expect("a runtime").block_on(property)
}

#[step]
async fn echo(value: &Payload) -> Result<Payload> {
    Ok(value.clone())
}

#[workflow]
async fn echoing(value: Payload) -> Result<Payload> {
    echo(&value).await
}

#[workflow]
async fn greeting() -> Result<()> {
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_key_of_any_text_names_one_run_or_is_refused(texts in prop::collection::vec(hostile_text(), 1..6)) {
        block_on(async {
            let engine = TestEngine::builder().register::<greeting>().open().await.unwrap();
            let mut runs = BTreeMap::new();
            for text in texts.iter().chain(&texts) {
                let usable = (1..=1024).contains(&text.len()) && !text.starts_with('=');
                match engine.start(greeting()).key(text.as_str()).await {
                    Ok(run) => {
                        prop_assert!(usable, "{text:?} was taken");
                        prop_assert_eq!(*runs.entry(text).or_insert(run.id()), run.id());
                    }
                    Err(EngineError::Key(_)) => prop_assert!(!usable, "{text:?} was refused"),
                    Err(other) => prop_assert!(false, "{other}"),
                }
            }
            let mut ids: Vec<_> = runs.values().collect();
            ids.sort();
            ids.dedup();
            prop_assert_eq!(ids.len(), runs.len(), "two keys name one run");
            Ok(())
        })?;
    }

    #[test]
    fn business_ids_are_usable_as_keys(kind in "[a-z]{1,8}", id in business_ids()) {
        block_on(async {
            let engine = TestEngine::builder().register::<greeting>().open().await.unwrap();
            let started = engine.start(greeting()).key(Key::business(&kind, &id)).await;
            prop_assert!(started.is_ok(), "{:?}", started.err());
            Ok(())
        })?;
    }

    #[test]
    fn parts_that_meet_when_they_are_joined_have_two_keys((parts, joined) in meeting_parts()) {
        prop_assert_eq!(parts.concat(), joined.concat());
        prop_assert_ne!(Key::of(&parts[..]), Key::of(&joined[..]));
    }

    #[test]
    fn two_lists_of_parts_have_one_key_only_if_they_are_equal(a in key_parts(), b in key_parts()) {
        prop_assert_eq!(Key::of(&a[..]) == Key::of(&b[..]), a == b);
    }

    #[test]
    fn any_payload_comes_back_as_it_was(value in payloads()) {
        block_on(async {
            let engine = TestEngine::builder().register::<echoing>().open().await.unwrap();
            let run = engine.start(echoing(value.clone())).await.unwrap();
            prop_assert_eq!(run.result().await.unwrap(), value);
            Ok(())
        })?;
    }

    #[test]
    fn equal_payloads_have_equal_keys_and_others_others(a in payloads(), b in payloads()) {
        prop_assert_eq!(Key::hash(&a), Key::hash(&a.clone()));
        if a != b {
            prop_assert_ne!(Key::hash(&a), Key::hash(&b));
        }
    }

    #[test]
    fn any_header_is_handled_once_or_refused(value in header_values()) {
        let Ok(value) = HeaderValue::from_bytes(&value) else {
            return Ok(()); // no server hands on what is no header
        };
        block_on(async {
            let engine = Engine::builder().open_in_memory().await.unwrap();
            let handled = Arc::new(AtomicU32::new(0));
            let count = handled.clone();
            let handler = post(async move || {
                count.fetch_add(1, Ordering::Relaxed);
                "done"
            });
            let app = Router::new().route("/", handler);
            let mut app = app.layer(IdempotencyLayer::new(engine.keys()).required());
            let mut answers = Vec::new();
            for _ in 0..3 {
                let request = Request::post("/").header("Idempotency-Key", &value);
                let response = app.call(request.body(Body::empty()).unwrap()).await.unwrap();
                answers.push(response.status());
            }
            let handled = handled.load(Ordering::Relaxed);
            match answers[0] {
                StatusCode::OK => prop_assert_eq!(handled, 1),
                StatusCode::BAD_REQUEST => prop_assert_eq!(handled, 0),
                other => prop_assert!(false, "{value:?} is answered with {other}"),
            }
            prop_assert!(answers.iter().all(|answer| *answer == answers[0]));
            Ok(())
        })?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn any_payload_survives_a_crash_at_every_write(value in payloads()) {
        let report = block_on(crash_everywhere(move || echoing(value.clone())).run());
        prop_assert_eq!(report.writes(), 3);
    }
}
