//! Every recipe of the cookbook keeps its word; each asserts its own claim.

use std::time::Duration;

use examples::cookbook::{
    cache, collisions, consumer, etl, expiry, http, keys, notification, order, payment, tenants,
    webhook,
};
use workflow_runtime::Result;

/// Longer than a recipe takes on a busy machine. Those that stop the clock need no limit, and have none.
const LIMIT: Duration = Duration::from_secs(120);

async fn cook(recipe: impl Future<Output = Result<String>>) {
    let ended = tokio::time::timeout(LIMIT, recipe).await;
    ended.expect("ends in time").expect("the engine works");
}

#[tokio::test]
async fn a_payment_is_charged_once_through_lost_answers_and_a_crash_at_every_write() {
    cook(payment::run()).await;
}

#[tokio::test]
async fn an_order_is_placed_once_or_not_at_all_when_its_edge_has_expired() {
    order::run().await.expect("the engine works");
}

#[tokio::test]
async fn a_notification_is_sent_once_if_and_only_if_its_step_succeeded() {
    cook(notification::run()).await;
}

#[tokio::test]
async fn an_ingestion_loads_each_row_once() {
    cook(etl::run()).await;
}

#[tokio::test]
async fn a_request_with_the_header_is_handled_once_and_answered_alike() {
    cook(http::run()).await;
}

#[tokio::test]
async fn an_event_that_is_delivered_again_causes_no_second_run() {
    cook(consumer::run()).await;
}

#[tokio::test]
async fn a_webhook_is_heard_once_early_repeated_or_late() {
    cook(webhook::run()).await;
}

#[tokio::test]
async fn keys_of_different_things_never_meet() {
    cook(keys::run()).await;
}

#[tokio::test]
async fn a_key_that_is_used_again_gives_the_run_or_a_conflict_or_a_retry() {
    cook(collisions::run()).await;
}

#[tokio::test]
async fn an_api_is_asked_once_for_all_runs_while_the_answer_is_good() {
    cache::run().await.expect("the engine works");
}

#[tokio::test]
async fn a_key_that_has_expired_names_a_new_run() {
    expiry::run().await.expect("the engine works");
}

#[tokio::test]
async fn the_same_key_of_two_tenants_is_two_keys() {
    cook(tenants::run()).await;
}
