//! What a step is given and returns has a type that tests can name: owned, whatever the function borrows.
#![forbid(unsafe_code)]
#![deny(warnings)]

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use workflow_runtime::testing::{TestEngine, TypedStep};
use workflow_runtime::{Result, step};

#[derive(serde::Serialize, serde::Deserialize, Clone)]
pub struct Order;

type Name = str;

/// A type without `Clone` and `Deserialize`: it can be borrowed by a step all the same.
#[derive(serde::Serialize)]
struct Bare;

#[step]
async fn nothing() {}
#[step]
async fn one(_a: &str) -> u32 {
    1
}
#[step]
async fn aliased(_a: &Name, _b: &[&str]) -> Result<()> {
    Ok(())
}
#[step]
async fn many<'a>(_a: &'a Order, _b: Option<&'a str>, _c: Cow<'_, str>, _d: &Path, (_e, _f): (u8, u8)) -> Result<Order> {
    Ok(Order)
}
#[step]
async fn maps(_a: &BTreeMap<String, Vec<u8>>, _b: [&str; 2], _c: Box<str>) {}
#[step]
async fn bare(_a: &Bare) {}
#[step(blocking)]
fn blocking(_a: Vec<u8>) -> Vec<u8> {
    Vec::new()
}
#[step]
async fn generic<T: serde::Serialize + Clone + Send>(_a: T) {}
#[step]
async fn anything(_a: impl serde::Serialize + Clone + Send) {}

mod inner {
    pub(crate) struct Hidden;
    impl serde::Serialize for Hidden {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_unit()
        }
    }
    #[workflow_runtime::step]
    pub(crate) async fn hides(_a: &Hidden) {}
}

fn is<S: TypedStep<Input = I, Output = O>, I, O>() {}

fn main() {
    let _calls = || {
        let _ = (nothing(), one(""), aliased("", &[]), bare(&Bare), blocking(vec![]), generic(1));
        let _ = (maps(&BTreeMap::new(), ["", ""], "".into()), anything(1), inner::hides(&inner::Hidden));
        drop(many(&Order, None, Cow::Borrowed(""), Path::new(""), (1, 2)));
    };
    is::<nothing, (), ()>();
    is::<one, String, u32>();
    is::<aliased, (String, Vec<String>), Result<()>>();
    is::<many, (Order, Option<String>, Cow<'static, str>, PathBuf, (u8, u8)), Result<Order>>();
    is::<maps, (BTreeMap<String, Vec<u8>>, [String; 2], Box<str>), ()>();
    is::<bare, Bare, ()>();
    is::<blocking, Vec<u8>, Vec<u8>>();
    is::<inner::hides, inner::Hidden, ()>();
    let _ = TestEngine::builder()
        .stub::<nothing>(|()| ())
        .stub::<one>(|a| a.len() as u32)
        .stub_async::<aliased>(|(_, b)| async move {
            assert!(b.is_empty());
            Ok(())
        })
        .stub::<many>(|(order, ..)| Ok(order))
        .stub::<maps>(|(a, b, _)| assert_eq!(a.len(), b.len()))
        .stub_as::<bare, Option<u8>>(|_| ())
        .stub::<blocking>(|bytes| bytes)
        .run_for_real::<generic>()
        .run_for_real::<anything>();
}
