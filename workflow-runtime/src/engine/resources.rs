//! What steps are given instead of journaled arguments: clients, pools, mailers.
//!
//! Owns the map from type to shared value. Never journaled, never cloned beyond its `Arc`.

use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Resources by their type.
#[derive(Clone, Default)]
pub(crate) struct Resources {
    /// Each value is an `Arc<T>`, boxed so that `T` may be unsized (`dyn Mailer`).
    by_type: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
}

/// Says which resource is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingResource {
    pub(crate) type_name: &'static str,
}

impl fmt::Display for MissingResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "no resource of type `{0}` was given to the engine: add `.resource(value)` (or \
             `.resource_arc::<{0}>(..)` for a trait object) to `Engine::builder()`",
            self.type_name
        )
    }
}

impl Resources {
    /// Puts a resource in, in place of an earlier one of the same type.
    pub(crate) fn insert<T: ?Sized + Send + Sync + 'static>(&mut self, resource: Arc<T>) {
        self.by_type.insert(TypeId::of::<T>(), Arc::new(resource));
    }

    /// Returns the resource of a type.
    pub(crate) fn get<T: ?Sized + Send + Sync + 'static>(&self) -> Result<Arc<T>, MissingResource> {
        self.by_type
            .get(&TypeId::of::<T>())
            .and_then(|any| any.downcast_ref::<Arc<T>>())
            .cloned()
            .ok_or(MissingResource {
                type_name: type_name::<T>(),
            })
    }
}
