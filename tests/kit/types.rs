//! What a step is given and returns has a type that tests can name: owned, whatever the function borrows.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use workflow_runtime::testing::{TestEngine, TypedStep};
use workflow_runtime::{Result, step, workflow};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Order(u32);

type Name = str;

/// A type without `Clone` and `Deserialize`: a step can borrow it all the same.
#[derive(Serialize)]
struct Bare(u8);

#[step]
async fn aliased(_name: &Name, _names: &[&str]) -> Result<()> {
    unreachable!("it is stubbed")
}

#[step]
async fn many<'a>(
    _order: &'a Order,
    _note: Option<&'a str>,
    _text: Cow<'_, str>,
    _path: &Path,
    (_a, _b): (u8, u8),
) -> Result<Order> {
    unreachable!("it is stubbed")
}

#[step]
async fn maps(_map: &BTreeMap<String, Vec<u8>>, _names: [&str; 2], _text: Box<str>) -> usize {
    unreachable!("it is stubbed")
}

#[step]
async fn bare(_bare: &Bare) -> u8 {
    unreachable!("it is stubbed")
}

#[step]
async fn anything(thing: impl Serialize + Clone + Send) {
    drop(thing);
}

fn is<S: TypedStep<Input = I, Output = O>, I, O>() {}

#[workflow]
async fn all() -> Result<(Order, usize, u8)> {
    aliased("ada", &["a", "b"]).await?;
    let text = Cow::Borrowed("text");
    let order = many(&Order(7), None, text, Path::new("/tmp"), (1, 2)).await?;
    let map = BTreeMap::from([("a".to_owned(), vec![1, 2])]);
    let size = maps(&map, ["x", "y"], "boxed".into()).await;
    anything(1).await;
    Ok((order, size, bare(&Bare(9)).await))
}

#[tokio::test]
async fn a_stub_owns_what_its_step_borrows() {
    is::<aliased, (String, Vec<String>), Result<()>>();
    is::<many, (Order, Option<String>, Cow<'static, str>, PathBuf, (u8, u8)), Result<Order>>();
    is::<maps, (BTreeMap<String, Vec<u8>>, [String; 2], Box<str>), usize>();
    is::<bare, Bare, u8>();
    let engine = TestEngine::builder()
        .register::<all>()
        .refuse_unstubbed()
        .run_for_real::<anything>()
        .stub_async::<aliased>(|(name, names)| async move {
            assert_eq!((name.as_str(), names.len()), ("ada", 2));
            Ok(())
        })
        .stub::<many>(|(order, note, text, path, pair)| {
            assert_eq!((note, &*text, pair), (None, "text", (1, 2)));
            assert_eq!(path, Path::new("/tmp"));
            Ok(order)
        })
        .stub::<maps>(|(map, names, text)| map["a"].len() + names.len() + text.len())
        .stub_as::<bare, u8>(|number| number + 1)
        .open()
        .await
        .unwrap();
    let run = engine.start(all()).await.unwrap();
    assert_eq!(run.result().await.unwrap(), (Order(7), 9, 10));
}
