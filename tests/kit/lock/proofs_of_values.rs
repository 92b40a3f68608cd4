//! The rules for types, proved like the others: values are recorded with the old type and read, or compared, with
//! the new one.

/// A step that gives a value of a type, and a workflow that takes it up.
macro_rules! returned {
    ($name:ident: $class:ident, { $old:item => $make_old:expr } => { $new:item => $make_new:expr }) => {
        proof!($name: $class,
            {
                #[derive(Clone, Serialize, Deserialize)]
                $old
                #[step] async fn make() -> Result<Value> { Ok($make_old) }
                #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { make().await?; a(n).await }
            } =>
            {
                #[derive(Clone, Serialize, Deserialize)]
                $new
                #[step] async fn make() -> Result<Value> { Ok($make_new) }
                #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { make().await?; a(n).await }
            });
    };
}

/// A step that is given a value of a type.
macro_rules! given {
    ($name:ident: $class:ident, { $old:item => $make_old:expr } => { $new:item => $make_new:expr }) => {
        proof!($name: $class,
            {
                #[derive(Clone, Serialize, Deserialize)]
                $old
                #[step] async fn take(_value: &Value) -> Result<()> { Ok(()) }
                #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { take(&$make_old).await?; a(n).await }
            } =>
            {
                #[derive(Clone, Serialize, Deserialize)]
                $new
                #[step] async fn take(_value: &Value) -> Result<()> { Ok(()) }
                #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { take(&$make_new).await?; a(n).await }
            });
    };
}

returned!(a_field_is_added: Breaking,
    { struct Value { x: u8 } => Value { x: 1 } } =>
    { struct Value { x: u8, y: u8 } => Value { x: 1, y: 2 } });

returned!(a_field_is_added_with_a_default: Safe,
    { struct Value { x: u8 } => Value { x: 1 } } =>
    { struct Value { x: u8, #[serde(default)] y: u8 } => Value { x: 1, y: 2 } });

returned!(an_optional_field_is_added: Safe,
    { struct Value { x: u8 } => Value { x: 1 } } =>
    { struct Value { x: u8, y: Option<String> } => Value { x: 1, y: None } });

returned!(a_field_is_taken_out: Safe,
    { struct Value { x: u8, y: u8 } => Value { x: 1, y: 2 } } =>
    { struct Value { x: u8 } => Value { x: 1 } });

returned!(a_field_is_taken_out_of_a_type_that_refuses_others: Breaking,
    { struct Value { x: u8, y: u8 } => Value { x: 1, y: 2 } } =>
    { #[serde(deny_unknown_fields)] struct Value { x: u8 } => Value { x: 1 } });

returned!(fields_change_places: Safe,
    { struct Value { x: u8, y: String } => Value { x: 1, y: "y".into() } } =>
    { struct Value { y: String, x: u8 } => Value { x: 1, y: "y".into() } });

returned!(a_field_is_renamed: Breaking,
    { struct Value { x: u8 } => Value { x: 1 } } =>
    { struct Value { z: u8 } => Value { z: 1 } });

returned!(a_field_is_renamed_and_read_by_its_old_name: Safe,
    { struct Value { x: u8 } => Value { x: 1 } } =>
    { struct Value { #[serde(alias = "x")] z: u8 } => Value { z: 1 } });

returned!(a_number_gets_wider: Safe,
    { struct Value { x: u32 } => Value { x: u32::MAX } } =>
    { struct Value { x: i64 } => Value { x: 1 } });

returned!(a_number_gets_narrower: Breaking,
    { struct Value { x: u64 } => Value { x: u64::MAX } } =>
    { struct Value { x: u32 } => Value { x: 1 } });

returned!(a_number_becomes_a_float: Safe,
    { struct Value { x: u32 } => Value { x: u32::MAX } } =>
    { struct Value { x: f64 } => Value { x: 1.0 } });

returned!(a_field_gets_another_type: Breaking,
    { struct Value { x: u32 } => Value { x: 1 } } =>
    { struct Value { x: String } => Value { x: "1".into() } });

returned!(a_value_becomes_optional: Safe,
    { struct Value { x: u32 } => Value { x: 1 } } =>
    { struct Value { x: Option<u32> } => Value { x: Some(1) } });

returned!(a_value_is_no_longer_optional: Breaking,
    { struct Value { x: Option<u32> } => Value { x: None } } =>
    { struct Value { x: u32 } => Value { x: 1 } });

returned!(a_variant_is_added: Safe,
    { enum Value { X } => Value::X } =>
    { #[allow(dead_code, reason = "a variant for later")] enum Value { X, Y(u8) } => Value::X });

returned!(a_variant_is_taken_out: Breaking,
    { #[allow(dead_code, reason = "a variant of earlier")] enum Value { X, Y } => Value::Y } =>
    { enum Value { X } => Value::X });

returned!(a_variant_holds_something_else: Breaking,
    { enum Value { X(u8) } => Value::X(1) } =>
    { enum Value { X { x: u8 } } => Value::X { x: 1 } });

returned!(a_tuple_becomes_a_list: Safe,
    { struct Value { x: (u8, u8) } => Value { x: (1, 2) } } =>
    { struct Value { x: Vec<u8> } => Value { x: vec![1, 2] } });

returned!(a_tuple_gets_longer: Breaking,
    { struct Value { x: (u8, u8) } => Value { x: (1, 2) } } =>
    { struct Value { x: (u8, u8, u8) } => Value { x: (1, 2, 3) } });

returned!(a_struct_becomes_a_number: Breaking,
    { struct Value { x: u8 } => Value { x: 1 } } =>
    { struct Value(u8); => Value(1) });

given!(an_input_gets_a_field: Safe,
    { struct Value { x: u8 } => Value { x: 1 } } =>
    { struct Value { x: u8, y: u8 } => Value { x: 1, y: 2 } });

given!(an_input_loses_a_field: Safe,
    { struct Value { x: u8, y: u8 } => Value { x: 1, y: 2 } } =>
    { struct Value { x: u8 } => Value { x: 1 } });

given!(an_input_gets_wider: Safe,
    { struct Value { x: u8 } => Value { x: 1 } } =>
    { struct Value { x: i64 } => Value { x: 1 } });

given!(an_input_becomes_optional: Safe,
    { struct Value { x: u8 } => Value { x: 1 } } =>
    { struct Value { x: Option<u8> } => Value { x: Some(1) } });

given!(an_input_gets_another_type: Breaking,
    { struct Value { x: u8 } => Value { x: 1 } } =>
    { struct Value { x: String } => Value { x: "1".into() } });

given!(a_variant_of_an_input_is_renamed: Breaking,
    { enum Value { X } => Value::X } =>
    { enum Value { Z } => Value::Z });

proof!(a_step_gets_an_argument: Safe,
{
    #[step] async fn take(_x: u64) -> Result<()> { Ok(()) }
    #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { take(n).await?; a(n).await }
} =>
{
    #[step] async fn take(_x: u64, _y: &str) -> Result<()> { Ok(()) }
    #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { take(n, "y").await?; a(n).await }
});

proof!(an_argument_of_a_step_is_renamed: Safe,
{
    #[step] async fn take(_x: u64) -> Result<()> { Ok(()) }
    #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { take(n).await?; a(n).await }
} =>
{
    #[step] async fn take(_z: u64) -> Result<()> { Ok(()) }
    #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { take(n).await?; a(n).await }
});

proof!(arguments_of_a_step_change_places: Breaking,
{
    #[step] async fn take(_x: u64, _y: &str) -> Result<()> { Ok(()) }
    #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { take(n, "y").await?; a(n).await }
} =>
{
    #[step] async fn take(_y: &str, _x: u64) -> Result<()> { Ok(()) }
    #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { take("y", n).await?; a(n).await }
});

proof!(a_step_cannot_fail_any_more: Breaking,
{
    #[step(max_attempts = 1)] async fn make() -> Result<u8, String> { Err("no".into()) }
    #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { let _ = make().await; a(n).await }
} =>
{
    #[step(max_attempts = 1)] async fn make() -> u8 { 1 }
    #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { let _ = make().await; a(n).await }
});

proof!(a_workflow_gets_an_argument: Breaking,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: u64, _m: u64) -> Result<u64> { a(n).await } });

proof!(a_workflow_gets_an_optional_argument: Safe,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(_m: Option<u64>, n: u64) -> Result<u64> { a(n).await } });

proof!(a_workflow_loses_an_argument: Safe,
    { #[workflow(name = "order")] pub(super) async fn order(_n: u64) -> Result<u64> { a(1).await } } =>
    { #[workflow(name = "order")] pub(super) async fn order() -> Result<u64> { a(1).await } });

proof!(an_argument_of_a_workflow_is_renamed: Breaking,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(m: u64) -> Result<u64> { a(m).await } });

proof!(an_argument_of_a_workflow_gets_another_type: Breaking,
    { #[workflow(name = "order")] pub(super) async fn order(n: u64) -> Result<u64> { a(n).await } } =>
    { #[workflow(name = "order")] pub(super) async fn order(n: String) -> Result<u64> { let _ = n; a(7).await } });
