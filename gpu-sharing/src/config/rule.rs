use serde::Serialize;

use super::{
    ResourceName, Result,
    key::{Field, Map, Walk},
};

/// How devices are called: the first rule whose pattern fits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Resources {
    /// By the model's name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<ResourceRule>,
    /// By the MIG profile.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mig: Vec<ResourceRule>,
}

impl Resources {
    pub(super) fn is_empty(&self) -> bool {
        self.gpus.is_empty() && self.mig.is_empty()
    }

    pub(super) fn read(map: &Map<'_>, walk: &mut Walk) -> Result<Self> {
        let mut rules = |key, place: &'static str| match map.get(key) {
            Some(field) => field
                .list()?
                .iter()
                .map(|item| ResourceRule::read(item, walk, place))
                .collect(),
            None => Ok(Vec::new()),
        };
        Ok(Self {
            gpus: rules("gpus", "resources.gpus[]")?,
            mig: rules("mig", "resources.mig[]")?,
        })
    }
}

/// A name for the devices that a pattern fits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ResourceRule {
    /// A whole name in which `*` stands for any characters; nothing else is special.
    pub pattern: String,
    /// The resource.
    pub name: ResourceName,
}

impl ResourceRule {
    /// Whether the pattern fits the whole of a name.
    ///
    /// ```
    /// use gpu_sharing::config::ResourceRule;
    /// let rule = ResourceRule { pattern: "1g.5gb*".into(), name: "small".parse()? };
    /// assert!(rule.matches("1g.5gb+me") && !rule.matches("11g.5gb"));
    /// # Ok::<(), gpu_sharing::config::ParseResourceNameError>(())
    /// ```
    pub fn matches(&self, name: &str) -> bool {
        let mut parts = self.pattern.split('*');
        let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
            return false;
        };
        let Some(last) = parts.next_back() else {
            return rest.is_empty(); // no star
        };
        // Each part as early as it can be leaves the most to those that follow.
        for part in parts {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
        rest.ends_with(last)
    }

    fn read(field: &Field<'_>, walk: &mut Walk, place: &'static str) -> Result<Self> {
        let map = walk
            .map(field.node, place, &field.path)?
            .ok_or_else(|| field.error("expected a pattern and a name"))?;
        Ok(Self {
            pattern: map
                .text("pattern")?
                .ok_or_else(|| field.error("no resource pattern specified"))?,
            name: map
                .resource_name("name")?
                .ok_or_else(|| field.error("no resource name specified"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_fit_whole_names() {
        #[track_caller]
        fn check(pattern: &str, name: &str, expected: bool) {
            let rule = ResourceRule {
                pattern: pattern.to_owned(),
                name: ResourceName::gpu(),
            };
            assert_eq!(rule.matches(name), expected, "{pattern} {name}");
        }
        check("*", "", true);
        check("*", "NVIDIA H100", true);
        check("1g.5gb", "1g.5gb", true);
        check("1g.5gb", "1g.5gb+me", false);
        check("1g.5gb", "1gx5gb", false);
        check("1g.5gb*", "1g.5gb+me.all", true);
        check("*-me", "1g.10gb-me", true);
        check("*+gfx", "1g.10gb+gfx", true);
        check("A*B*A", "ABA", true);
        check("A*B*A", "AxBxBxA", true);
        check("A*A", "A", false);
        check("**", "x", true);
        check("", "", true);
        check("", "x", false);
    }
}
