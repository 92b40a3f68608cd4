//! Functions that a macro writes.
#![forbid(unsafe_code)]
#![deny(warnings)]

use workflow_runtime::{step, workflow};

macro_rules! steps {
    ($($name:ident: $ty:ty => $body:expr),*) => {$(
        #[step]
        async fn $name(value: $ty) -> $ty {
            let _used = value;
            $body
        }
    )*};
}

macro_rules! flow {
    ($name:ident, $call:expr) => {
        #[workflow]
        async fn $name() -> u8 {
            async { $call.await }.await
        }
    };
}

steps!(one: u8 => 1, two: String => String::from("2"));
flow!(three, one(3));

fn main() {
    let _calls = || (one(1), two(String::new()), three());
}
