//! Licences as crates name them: `MIT OR Apache-2.0`, and what is older than that.

/// Says whether an expression can be fulfilled with licences that may be used.
pub(super) fn allows(expression: &str, may: &dyn Fn(&str) -> bool) -> bool {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR "); // how it was written before there was a rule
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = &words[..];
    let allowed = any(&mut rest, may);
    assert!(rest.is_empty(), "{expression}: {rest:?} is left over");
    allowed
}

fn any(rest: &mut &[&str], may: &dyn Fn(&str) -> bool) -> bool {
    let mut allowed = all(rest, may);
    while take(rest, "OR") {
        allowed |= all(rest, may);
    }
    allowed
}

fn all(rest: &mut &[&str], may: &dyn Fn(&str) -> bool) -> bool {
    let mut allowed = one(rest, may);
    while take(rest, "AND") {
        allowed &= one(rest, may);
    }
    allowed
}

fn one(rest: &mut &[&str], may: &dyn Fn(&str) -> bool) -> bool {
    if take(rest, "(") {
        let allowed = any(rest, may);
        assert!(take(rest, ")"), "a parenthesis is open");
        return allowed;
    }
    let (name, tail) = rest.split_first().expect("a licence is expected");
    *rest = tail;
    match take(rest, "WITH") {
        false => may(name),
        true => {
            let (exception, tail) = rest.split_first().expect("an exception is expected");
            *rest = tail;
            may(&format!("{name} WITH {exception}"))
        }
    }
}

fn take(rest: &mut &[&str], word: &str) -> bool {
    let found = rest.first() == Some(&word);
    if found {
        *rest = &rest[1..];
    }
    found
}

#[test]
fn a_licence_is_allowed_if_one_way_to_fulfil_it_is() {
    let may = |name: &str| ["MIT", "Apache-2.0"].contains(&name);
    for allowed in [
        "MIT",
        "MIT/Apache-2.0",
        "GPL-3.0 OR MIT",
        "(GPL-3.0 OR MIT) AND Apache-2.0",
        "Apache-2.0 WITH LLVM-exception OR MIT",
        "GPL-3.0 AND GPL-2.0 OR MIT",
    ] {
        assert!(allows(allowed, &may), "{allowed}");
    }
    for refused in [
        "GPL-3.0",
        "MIT AND GPL-3.0",
        "MIT AND (GPL-3.0 OR AGPL-3.0)",
        "Apache-2.0 WITH LLVM-exception",
        "GPL-3.0 OR MIT AND GPL-2.0",
    ] {
        assert!(!allows(refused, &may), "{refused}");
    }
}
