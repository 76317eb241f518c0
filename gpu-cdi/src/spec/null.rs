//! Null in a spec, which Go reads as nothing at all.

use serde::{Deserialize, Deserializer};

/// A value, or its default where there is null.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}
