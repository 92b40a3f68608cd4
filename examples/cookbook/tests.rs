//! Every recipe of the cookbook keeps its word; each asserts its own claim.

use examples::cookbook::{
    cache, collisions, consumer, etl, expiry, http, keys, notification, order, payment, tenants,
    webhook,
};

#[tokio::test]
async fn a_payment_is_charged_once_through_lost_answers_and_a_crash_at_every_write() {
    payment::run().await.expect("the engine works");
}

#[tokio::test]
async fn an_order_is_placed_once_or_not_at_all_when_its_edge_has_expired() {
    order::run().await.expect("the engine works");
}

#[tokio::test]
async fn a_notification_is_sent_once_if_and_only_if_its_step_succeeded() {
    notification::run().await.expect("the engine works");
}

#[tokio::test]
async fn an_ingestion_loads_each_row_once() {
    etl::run().await.expect("the engine works");
}

#[tokio::test]
async fn a_request_with_the_header_is_handled_once_and_answered_alike() {
    http::run().await.expect("the engine works");
}

#[tokio::test]
async fn an_event_that_is_delivered_again_causes_no_second_run() {
    consumer::run().await.expect("the engine works");
}

#[tokio::test]
async fn a_webhook_is_heard_once_early_repeated_or_late() {
    webhook::run().await.expect("the engine works");
}

#[tokio::test]
async fn keys_of_different_things_never_meet() {
    keys::run().await.expect("the engine works");
}

#[tokio::test]
async fn a_key_that_is_used_again_gives_the_run_or_a_conflict_or_a_retry() {
    collisions::run().await.expect("the engine works");
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
    tenants::run().await.expect("the engine works");
}
