//! What the shape of a body is, as an outline to read.

use super::*;
use crate::expand::shape::lookup as expanded;
use proc_macro2::{Delimiter, TokenStream};
use quote::quote;

fn shape(body: &str) -> Shape {
    let tokens: TokenStream = body.parse().expect("the body has balanced tokens");
    Shape::of(&Group::new(Delimiter::Brace, tokens))
}

fn outline(shape: &Shape, nodes: &[Node]) -> String {
    let all = |nodes: &[Node]| outline(shape, nodes);
    let parts: Vec<String> = nodes
        .iter()
        .map(|node| match node {
            Node::Call { callee, said, .. } => match &**said {
                "" => shape.callees[*callee].text.clone(),
                said => format!("{} ({said})", shape.callees[*callee].text),
            },
            Node::Branch { head, arms, .. } => {
                let arms: Vec<_> = arms
                    .iter()
                    .map(|(w, b)| format!("{w}: {}", all(b)))
                    .collect();
                format!("if `{head}` [{}]", arms.join(" | "))
            }
            Node::Loop { head, body, .. } => format!("loop `{head}` [{}]", all(body)),
            Node::Together {
                head,
                race,
                branches,
                ..
            } => {
                let branches: Vec<_> = branches.iter().map(|it| all(it)).collect();
                let how = if *race { "race" } else { "join" };
                format!("{how} `{head}` [{}]", branches.join(" | "))
            }
            Node::Block { body, .. } => format!("async [{}]", all(body)),
        })
        .collect();
    parts.join(", ")
}

fn outlined(body: &str) -> String {
    let shape = shape(body);
    outline(&shape, &shape.body)
}

#[test]
fn a_shape_lists_calls_in_the_order_of_the_source() {
    for (body, expected) in [
        (
            "let r = charge(&o, 5).await?; ship(r).await",
            "charge, ship",
        ),
        ("notify(fetch(1).await?).await", "fetch, notify"),
        (
            "steps::pay(1).key(\"a\").timeout(d).await",
            "steps::pay (key \"a\")",
        ),
        (
            "pay(1).timeout(d).key(&item.sku).await",
            "pay (key &item.sku)",
        ),
        ("pay(find(2).await?).await; x.key(1)", "find, pay"),
        ("client.pay(find(2)).key(1)", "find"),
        (
            "let yes = wait_for::<bool>(\"approved\").await?;",
            "wait_for (\"approved\")",
        ),
        (
            "publish(\"state\", &1); sleep(d).await",
            "publish (\"state\"), sleep",
        ),
        ("crate::a::b::pay::<u8>(1).await", "crate::a::b::pay"),
        ("Ok(Receipt::new(Some(1)))", ""),
        ("let n: u32 = u32::from_str_radix(x, 2)?; n", ""),
        ("validate(&order)?; charge(parse(x)?).await", "charge"),
        ("client.charge(1).await", ""),
        (
            "if ready(x) && !empty(y) || left(charge(1).await) > 2 {}",
            "charge",
        ),
        (
            "while (ready(x)) { charge(1).await; }",
            "loop `while (ready(x))` [charge]",
        ),
        ("fn pay() { charge() } async fn b() { ship() }", ""),
        ("let x = S { a: charge(1).await? };", "charge"),
    ] {
        assert_eq!(outlined(body), expected, "{body}");
    }
}

#[test]
fn a_body_that_does_not_parse_has_an_empty_shape() {
    assert_eq!(outlined("let = charge(1).await;"), "");
}

#[test]
fn branches_loops_and_closures_hold_what_happens_in_them() {
    for (body, expected) in [
        (
            "if total > 100 { approve(1).await? } else { note(2).await? }",
            "if `total > 100` [yes: approve | no: note]",
        ),
        ("if is_big(1).await { 1 } else { 2 }", "is_big"),
        (
            "match kind { Kind::A(x) => a(x).await, _ => b().await }",
            "if `kind` [Kind::A(x): a | _: b]",
        ),
        (
            "let Some(x) = find(1).await else { report(2).await; return };",
            "find, if `let Some(x)` [else: report]",
        ),
        (
            "for item in &order.items { reserve(item).await?; }",
            "loop `for item in &order.items` [reserve]",
        ),
        (
            "while more(1).await { next(2).await }",
            "loop `while more(1).await` [more, next]",
        ),
        ("loop { poll(1).await; }", "loop `loop` [poll]"),
        (
            "join_all(items.iter().map(|item| charge(item))).await",
            "loop `|item|` [charge], join_all",
        ),
        ("async { a().await }.await", "async [a]"),
    ] {
        assert_eq!(outlined(body), expected, "{body}");
    }
}

#[test]
fn macro_arguments_are_walked_and_those_that_drive_futures_are_joins() {
    for (body, expected) in [
        ("join!(a(1), b(2))", "join `join` [a | b]"),
        (
            "tokio::try_join!(async { a(1).await?; b(2).await }, c(3))?",
            "join `tokio::try_join` [async [a, b] | c]",
        ),
        (
            "futures::future::join(a(1), b(2)).await",
            "join `futures::future::join` [a | b]",
        ),
        (
            "select! { biased; r = a(1) => { b(r).await } , () = sleep(d), if x => c(2).await, }",
            "race `select` [a, b | sleep, c]",
        ),
        ("assert!(check(1).await)", "check"),
        ("vec![a(1), b(2)]", "a, b"),
        (
            "weird!(x => charge(1), y.ship(2), steps::pay(3)?)",
            "charge",
        ),
        ("macro_rules! m { () => { charge(1) } }", ""),
    ] {
        assert_eq!(outlined(body), expected, "{body}");
    }
}

fn lookups(body: &str) -> Vec<String> {
    let shape = shape(body);
    let text = |it: &Callee| {
        let tokens = expanded(&it.name, &it.lookup, &quote!(d)).to_string();
        normal(&tokens).replace("CALL_charge_BY_ITS_PATH_AS_A_MODULE_HAS_ITS_NAME", "T")
    };
    shape.callees.iter().map(text).collect()
}

/// A text without its spaces: tokens that were made print other ones than tokens that were read.
fn normal(text: &str) -> String {
    text.replace(' ', "")
}

#[test]
fn a_name_is_looked_up_where_the_body_would_find_it() {
    let fallback = "#[allow(non_camel_case_types)] struct charge {}";
    let table = [
        (
            "charge(1)",
            format!("{{ {fallback} {{ use self::*; charge::T }} }}"),
        ),
        (
            "a::b::charge(1)",
            format!("{{ {{ {fallback} {{ use a::b::*; charge::T }} }} }}"),
        ),
        (
            "charge::charge(1)",
            format!(
                "{{ use charge as __module; {{ {fallback} {{ use __module::*; charge::T }} }} }}"
            ),
        ),
        (
            "use steps::charge; charge(1)",
            format!("{{ {{ {fallback} {{ use steps::*; charge::T }} }} }}"),
        ),
        (
            "use steps::{other, deep::charge as pay}; pay(1)",
            format!("{{ {{ {fallback} {{ use steps::deep::*; charge::T }} }} }}"),
        ),
        (
            "use crate::steps; steps::charge(1)",
            format!("{{ {{ {fallback} {{ use crate::steps::*; charge::T }} }} }}"),
        ),
        (
            "use steps::*; charge(1)",
            format!("{{ {fallback} {{ use self::*; {{ use steps::*; charge::T }} }} }}"),
        ),
        ("mod own { } own::charge(1)", "d::Target::Other".into()),
        ("fn charge() {} charge()", "d::Target::Other".into()),
        ("#[cfg(unix)] a::charge(1);", "d::Target::Other".into()),
        (
            "#[cfg(unix)] charge(1);",
            format!("{{ {fallback} {{ use self::*; charge::T }} }}"),
        ),
    ];
    for (body, expected) in table {
        assert_eq!(lookups(body), [normal(&expected)], "{body}");
    }
}

#[test]
fn a_function_is_looked_up_once_however_often_it_is_called() {
    assert_eq!(
        lookups("charge(1); charge(2); a::charge(3); a::charge(4)").len(),
        2
    );
}
