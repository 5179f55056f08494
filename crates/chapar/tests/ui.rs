//! What the compiler says about common mistakes.

#[test]
fn common_mistakes_are_explained() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
