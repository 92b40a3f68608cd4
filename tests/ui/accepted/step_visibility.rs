//! Visibility is kept, for the function and its type.
#![forbid(unsafe_code)]
#![deny(warnings)]


mod inner {
    pub mod deep {
        use workflow_runtime::{step, workflow};

        #[step]
        pub async fn public() {}
        #[step]
        pub(crate) async fn within_crate() {}
        #[step]
        pub(in crate::inner) async fn within_inner() {}
        #[workflow]
        pub(super) async fn within_super() {}
    }
    pub(crate) fn names() -> [&'static str; 2] {
        let _calls = || (deep::within_inner(), deep::within_super());
        [deep::within_inner::NAME, deep::within_super::NAME]
    }
}

fn main() {
    let _calls = || (inner::deep::public(), inner::deep::within_crate());
    assert_eq!(inner::names(), ["within_inner", "within_super"]);
    assert_eq!(inner::deep::public::NAME, "public");
}
