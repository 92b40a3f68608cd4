//! Stories told with `workflow-runtime`; each `[[example]]` is a file of its own.
