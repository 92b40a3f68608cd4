//! What the attributes expand to, as snapshots to read.
//!
//! After a deliberate change run with `INSTA_UPDATE=always` and read the difference.

use insta::assert_snapshot;
use proc_macro2::TokenStream;

use crate::{expand_step, expand_workflow};

fn formatted(
    expand: fn(TokenStream, TokenStream) -> TokenStream,
    options: &str,
    item: &str,
) -> String {
    let parse = |text: &str| -> TokenStream { text.parse().expect("the test's own tokens") };
    let expanded = expand(parse(options), parse(item));
    match syn::parse2(expanded.clone()) {
        Ok(file) => prettyplease::unparse(&file),
        Err(error) => panic!("the expansion is no Rust: {error}\n{expanded}"),
    }
}

fn step(options: &str, item: &str) -> String {
    formatted(expand_step, options, item)
}

fn workflow(options: &str, item: &str) -> String {
    formatted(expand_workflow, options, item)
}

#[test]
fn a_step_becomes_one_call_into_the_runtime() {
    assert_snapshot!(step(
        "",
        "/// Charges.\n pub async fn charge(customer: &str, cents: u64) -> Result<Receipt> { pay(customer, cents).await }",
    ));
}

#[test]
fn options_of_a_step_become_its_definition() {
    assert_snapshot!(step(
        r#"name = "pay", max_attempts = 5, backoff = "200ms..30s", timeout = "10s", retry_if = transient, key = order.id"#,
        "async fn charge(order: &Order) -> Result<(), Failure> { Ok(()) }",
    ));
}

#[test]
fn what_a_step_says_about_itself_becomes_its_definition() {
    assert_snapshot!(step(
        r#"at_most_once, effect = "message", fresh_for = "30s", on_stale = "abort", durability = "synced""#,
        "async fn tell(whom: &str) -> Result<()> { Ok(()) }",
    ));
}

#[test]
fn lifetimes_and_type_parameters_of_a_step_outlive_its_call() {
    assert_snapshot!(step(
        "marker = false",
        "async fn store<'a, T: Serialize, U, const N: usize>(a: &'a T, b: Cow<'_, str>, c: impl Into<U>, (d, e): (u8, u8)) -> [U; N] where U: Clone { todo!() }",
    ));
}

#[test]
fn resources_are_fetched_by_each_attempt() {
    assert_snapshot!(step(
        "",
        "async fn mail(#[resource] mailer: &dyn Mailer, to: String, #[resource] log: Arc<Log>) { mailer.mail(to, log).await }",
    ));
}

#[test]
fn an_undo_is_given_what_its_step_was_given_and_gave() {
    assert_snapshot!(step(
        "undo = refunds::refund",
        "async fn charge(#[resource] payments: &Payments, customer: &str, cents: u64) -> Result<Receipt> { payments.charge(customer, cents).await }",
    ));
}

#[test]
fn a_blocking_step_runs_on_the_blocking_pool() {
    assert_snapshot!(step(
        r#"blocking, crate = "::wf""#,
        "fn resize<T: Image>(mut image: T, #[resource] gpu: &Gpu) -> Vec<T> { image.shrink(gpu) }",
    ));
}

#[test]
fn a_workflow_becomes_a_call_and_a_type() {
    assert_snapshot!(workflow(
        r#"name = "shop.checkout", version = 2"#,
        "#[cfg(unix)] #[expect(unused_mut, reason = \"x\")] pub(crate) async fn checkout(mut order: Order, (a, b): (u8, u8)) -> Result<Receipt> { charge(&order).await }",
    ));
}

#[test]
fn async_blocks_of_a_workflow_become_scopes() {
    assert_snapshot!(workflow(
        "",
        "async fn both() -> u8 {
            let (a, b) = join!(async { one().await }, async move { two().await });
            let each = async |x: u8| -> Option<u8> { Some(three(x).await?) };
            async fn helper() { async {}.await }
            a + b + each(1).await
        }",
    ));
}

#[test]
fn an_inline_workflow_is_a_scope_in_the_run_that_calls_it() {
    assert_snapshot!(workflow(
        "inline",
        "async fn total<'a, T: Sync>(ids: &[T], first: &'a str) -> Result<&'a str> { async { first }.await }",
    ));
}

#[test]
fn a_step_with_an_unsound_signature_becomes_a_stub() {
    assert_snapshot!(step(
        "",
        "fn charge(#[resource] payments: &Payments, list: &mut Vec<u8>) -> Option<&str> { list.first() }",
    ));
}

#[test]
fn a_workflow_with_an_unsound_signature_becomes_a_stub() {
    assert_snapshot!(workflow(
        "",
        "async fn checkout(order: &Order) -> Result<Receipt> { charge(order).await }",
    ));
}

#[test]
fn an_attribute_that_is_not_ours_goes_on_the_function_with_the_body() {
    let item = "#[tracing::instrument(skip_all)] async fn charge(cents: u64) -> u64 { cents }";
    for expanded in [step("", item), workflow("", item), workflow("inline", item)] {
        let words: Vec<&str> = expanded.split_whitespace().collect();
        let body = "#[tracing::instrument(skip_all)] async fn __body(cents: u64)";
        assert!(words.join(" ").contains(body), "{expanded}");
        assert_eq!(expanded.matches("instrument").count(), 1, "{expanded}");
    }
}

#[test]
fn a_mistake_in_a_body_leaves_the_real_expansion() {
    let expanded = workflow("", "async fn checkout() -> Instant { Instant::now() }");
    assert!(expanded.contains("impl ::workflow_runtime::__private::Workflow for checkout"));
    assert_eq!(expanded.matches("compile_error!").count(), 1, "{expanded}");
}

#[test]
fn a_mistake_in_the_options_leaves_the_real_expansion() {
    let expanded = step("max_attempts = 0, nmae = 1", "async fn charge() {}");
    assert!(expanded.contains("step_call("), "{expanded}");
    assert_eq!(expanded.matches("compile_error!").count(), 2, "{expanded}");
}

#[test]
fn an_item_that_is_no_function_is_given_back() {
    let expanded = step("", "struct Order;");
    assert!(expanded.starts_with("struct Order;"), "{expanded}");
    assert_eq!(expanded.matches("compile_error!").count(), 1, "{expanded}");
}

#[test]
fn a_body_that_does_not_parse_is_passed_on() {
    let expanded = expand_step(
        TokenStream::new(),
        "async fn charge() { let x = ; }".parse().expect("tokens"),
    );
    assert!(expanded.to_string().contains("let x = ;"), "{expanded}");
    assert!(
        !expanded.to_string().contains("compile_error"),
        "{expanded}"
    );
}
