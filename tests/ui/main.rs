//! What the macros accept, and what they say about what they refuse.
//!
//! Every file is compiled as a user's crate would be. `refused/` holds the exact messages;
//! after a deliberate change run with `TRYBUILD=overwrite` and read the difference.

#[test]
fn accepted_forms_compile_and_mistakes_are_explained() {
    let cases = trybuild::TestCases::new();
    cases.pass("ui/accepted/*.rs");
    cases.compile_fail("ui/refused/*.rs");
}
