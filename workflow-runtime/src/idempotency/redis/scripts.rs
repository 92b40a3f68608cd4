//! The scripts that change rows, loaded once.

pub(super) use redis::Script;

/// All of them.
pub(super) struct Scripts {
    pub(super) reserve: Script,
    pub(super) complete: Script,
    pub(super) release: Script,
    pub(super) extend: Script,
}

impl Default for Scripts {
    fn default() -> Self {
        Self {
            reserve: Script::new(include_str!("reserve.lua")),
            complete: Script::new(include_str!("complete.lua")),
            release: Script::new(include_str!("release.lua")),
            extend: Script::new(include_str!("extend.lua")),
        }
    }
}
