//! The examples, run as a newcomer runs them.

use std::path::PathBuf;
use std::process::{Command, Output};

/// The built example. `cargo test` builds the examples beside the tests.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().expect("a test knows where it is");
    let profile = test.ancestors().nth(2).expect("target/<profile>/deps/test");
    let path: PathBuf = profile.join("examples").join(name);
    assert!(
        path.exists(),
        "{} is not built: run `cargo build -p examples --examples` first",
        path.display()
    );
    Command::new(path)
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("examples print text")
}

#[test]
fn checkout_charges_once_through_two_kills() {
    let output = example("checkout").output().expect("it starts");
    let said = stdout(&output);
    assert_eq!(said.matches("✗ SIGKILL").count(), 2, "{said}");
    assert_eq!(said.matches("  CHARGE  ").count(), 1, "{said}");
    assert!(said.contains("\nRIGHT: "), "{said}");
}

#[test]
fn quickstart_executes_nothing_the_second_time() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let run = || {
        let mut quickstart = example("quickstart");
        let output = quickstart.arg(dir.path().join("quickstart.db")).output();
        stdout(&output.expect("it starts"))
    };
    let (first, second) = (run(), run());
    let executed = |said: &str| said.matches("is executed").count();
    assert_eq!((executed(&first), executed(&second)), (2, 0));
    let rest: String = first
        .lines()
        .filter(|line| !line.ends_with("is executed"))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(rest, second, "the same run and the same result");
}

#[test]
fn approval_reminds_pays_once_and_gives_up_where_nobody_answers() {
    let said = stdout(&example("approval").output().expect("it starts"));
    assert_eq!(said.matches("reminder 1: lunch").count(), 1, "{said}");
    assert_eq!(said.matches("the bank pays").count(), 1, "{said}");
    assert!(said.contains("\n12 paid for lunch\n"), "{said}");
    assert_eq!(said.matches(": yacht?").count(), 2, "two reminders: {said}");
    assert!(said.contains("\nyacht: nobody answered run_"), "{said}");
    assert!(
        said.contains("⑂ pay"),
        "the child is in the journal: {said}"
    );
}

#[test]
fn cookbook_prints_a_line_for_every_recipe_of_the_book() {
    let said = stdout(&example("cookbook").output().expect("it starts"));
    let book = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/cookbook.md");
    let book = std::fs::read_to_string(book).expect("the book is there");
    let linked = |recipe: &str| book.contains(&format!("(../examples/cookbook/{recipe}.rs)"));
    let recipes: Vec<&str> = said
        .lines()
        .filter_map(|line| line.split(':').next())
        .collect();
    assert_eq!(
        recipes.len(),
        book.matches("(../examples/cookbook/").count(),
        "{said}"
    );
    assert!(recipes.iter().all(|recipe| linked(recipe)), "{said}");
}
