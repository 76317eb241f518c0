//! Null in a spec, which Go reads as nothing at all.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

/// A value, or its default where there is null.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Texts by name, of which each and all together may be null.
pub(super) fn texts<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    let texts: BTreeMap<String, Option<String>> = or_default(deserializer)?;
    let text = |(name, text): (String, Option<String>)| (name, text.unwrap_or_default());
    Ok(texts.into_iter().map(text).collect())
}
