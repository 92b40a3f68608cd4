//! The arguments of steps and workflows as journaled values.
//!
//! Owns the traits that say what an argument must be able to do (with messages that tell the way
//! out) and the form arguments take as a payload: a map from parameter name to value, so that
//! they can be shown and read by name. Their digest counts them in order, without the names.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{
    self, DeserializeOwned, DeserializeSeed, IgnoredAny, IntoDeserializer as _, MapAccess, Visitor,
};
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An argument of a step: it is journaled, and cloned for every attempt.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be an argument of a step: it cannot be journaled",
    label = "cannot be journaled",
    note = "a step's arguments are journaled and cloned for every attempt: derive `serde::Serialize` and `Clone` for `{Self}` (and it must be `Send`), or take it as `#[resource]`"
)]
pub trait StepArg: Serialize + Clone + Send {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + Clone + Send> StepArg for T {}

/// A value that crosses the journal and comes back: outputs, errors, workflow inputs.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be journaled",
    label = "cannot be journaled",
    note = "a value that crosses the journal is written and read back: derive `serde::Serialize` and `serde::Deserialize` for `{Self}` (and it must be `Send + 'static`)"
)]
pub trait Journaled: Serialize + DeserializeOwned + Send + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + Send + 'static> Journaled for T {}

/// The arguments of a step, as a tuple.
///
/// `Serialize` is no supertrait: an argument that does not implement it would be reported twice,
/// the second time without our words.
pub trait StepArgs: Clone + Send {
    /// Writes the arguments in order; this is what their digest is taken of.
    #[doc(hidden)]
    fn serialize_ordered<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;

    /// Writes the arguments as a map from name to value.
    #[doc(hidden)]
    fn serialize_named<S: Serializer>(
        &self,
        names: &'static [&'static str],
        serializer: S,
    ) -> Result<S::Ok, S::Error>;
}

/// The arguments of a workflow, as a tuple.
pub trait WorkflowArgs: Send + Sized + 'static {
    /// Writes the arguments in order; this is what their digest is taken of.
    #[doc(hidden)]
    fn serialize_ordered<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error>;

    /// Writes the arguments as a map from name to value.
    #[doc(hidden)]
    fn serialize_named<S: Serializer>(
        &self,
        names: &'static [&'static str],
        serializer: S,
    ) -> Result<S::Ok, S::Error>;

    /// Reads the arguments from a map; names that are not among `names` are passed over.
    #[doc(hidden)]
    fn deserialize_named<'de, D: Deserializer<'de>>(
        names: &'static [&'static str],
        deserializer: D,
    ) -> Result<Self, D::Error>;
}

/// A step's arguments in order, to be digested.
pub(crate) struct OrderedStepArgs<'a, A>(pub(crate) &'a A);

impl<A: StepArgs> Serialize for OrderedStepArgs<'_, A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize_ordered(serializer)
    }
}

/// A workflow's arguments in order, to be digested.
pub(crate) struct OrderedWorkflowArgs<'a, A>(pub(crate) &'a A);

impl<A: WorkflowArgs> Serialize for OrderedWorkflowArgs<'_, A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize_ordered(serializer)
    }
}

/// A step's arguments with their names, to be serialized.
pub(crate) struct NamedStepArgs<'a, A>(pub(crate) &'static [&'static str], pub(crate) &'a A);

impl<A: StepArgs> Serialize for NamedStepArgs<'_, A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.1.serialize_named(self.0, serializer)
    }
}

/// A workflow's arguments with their names, to be serialized.
pub(crate) struct NamedWorkflowArgs<'a, A>(pub(crate) &'static [&'static str], pub(crate) &'a A);

impl<A: WorkflowArgs> Serialize for NamedWorkflowArgs<'_, A> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.1.serialize_named(self.0, serializer)
    }
}

/// Reads a workflow's arguments by name.
pub(crate) struct WorkflowArgsSeed<A>(
    pub(crate) &'static [&'static str],
    pub(crate) PhantomData<A>,
);

impl<'de, A: WorkflowArgs> DeserializeSeed<'de> for WorkflowArgsSeed<A> {
    type Value = A;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<A, D::Error> {
        A::deserialize_named(self.0, deserializer)
    }
}

/// The place of an argument in a payload's map, or nowhere.
struct Place(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Place {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Place {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name of an argument")
    }

    fn visit_str<E>(self, name: &str) -> Result<Option<usize>, E> {
        Ok(self.0.iter().position(|known| *known == name))
    }
}

/// Gives an argument that is not in the payload its value, if it can do without: an `Option`
/// is `None`.
fn absent<'de, T: Deserialize<'de>, E: de::Error>(name: &'static str) -> Result<T, E> {
    T::deserialize(().into_deserializer()).map_err(|_: E| E::missing_field(name))
}

macro_rules! tuples {
    ($($arg:ident $slot:ident $index:tt),*) => {
        impl<$($arg: StepArg),*> StepArgs for ($($arg,)*) {
            fn serialize_ordered<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.serialize(serializer)
            }

            fn serialize_named<S: Serializer>(
                &self,
                _names: &'static [&'static str],
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                #[allow(unused_mut, reason = "no arguments, nothing to write")]
                let mut map = serializer.serialize_map(Some(0 $(+ { let _ = $index; 1 })*))?;
                $(map.serialize_entry(_names[$index], &self.$index)?;)*
                map.end()
            }
        }

        impl<$($arg: Journaled),*> WorkflowArgs for ($($arg,)*) {
            fn serialize_ordered<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.serialize(serializer)
            }

            fn serialize_named<S: Serializer>(
                &self,
                _names: &'static [&'static str],
                serializer: S,
            ) -> Result<S::Ok, S::Error> {
                #[allow(unused_mut, reason = "no arguments, nothing to write")]
                let mut map = serializer.serialize_map(Some(0 $(+ { let _ = $index; 1 })*))?;
                $(map.serialize_entry(_names[$index], &self.$index)?;)*
                map.end()
            }

            fn deserialize_named<'de, Des: Deserializer<'de>>(
                names: &'static [&'static str],
                deserializer: Des,
            ) -> Result<Self, Des::Error> {
                struct Arguments<$($arg),*>(&'static [&'static str], PhantomData<($($arg,)*)>);
                impl<'de, $($arg: Journaled),*> Visitor<'de> for Arguments<$($arg),*> {
                    type Value = ($($arg,)*);

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        write!(f, "a map with the arguments {:?}", self.0)
                    }

                    fn visit_map<Map: MapAccess<'de>>(
                        self,
                        mut map: Map,
                    ) -> Result<Self::Value, Map::Error> {
                        $(let mut $slot: Option<$arg> = None;)*
                        while let Some(place) = map.next_key_seed(Place(self.0))? {
                            match place {
                                $(Some($index) => $slot = Some(map.next_value()?),)*
                                _ => drop(map.next_value::<IgnoredAny>()?),
                            }
                        }
                        Ok(($(match $slot {
                            Some(value) => value,
                            None => absent(self.0[$index])?,
                        },)*))
                    }
                }
                deserializer.deserialize_map(Arguments(names, PhantomData))
            }
        }
    };
}

tuples!();
tuples!(A a 0);
tuples!(A a 0, B b 1);
tuples!(A a 0, B b 1, C c 2);
tuples!(A a 0, B b 1, C c 2, D d 3);
tuples!(A a 0, B b 1, C c 2, D d 3, E e 4);
tuples!(A a 0, B b 1, C c 2, D d 3, E e 4, F f 5);
tuples!(A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6);
tuples!(A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7);
tuples!(A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8);
tuples!(A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8, J j 9);
tuples!(A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8, J j 9, K k 10);
tuples!(A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8, J j 9, K k 10, L l 11);
