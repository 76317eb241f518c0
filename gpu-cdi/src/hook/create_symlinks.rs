use std::{path::Path, str::FromStr};

use super::{Container, Error, Report, Result};

/// A link that is to be made, written `target::link`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Link {
    target: String,
    path: String,
}

impl FromStr for Link {
    type Err = Error;

    fn from_str(link: &str) -> Result<Self> {
        match link.split("::").collect::<Vec<_>>()[..] {
            [target, path] if !target.is_empty() && !path.is_empty() => Ok(Self {
                target: target.to_owned(),
                path: path.to_owned(),
            }),
            _ => Err(Error::usage(format!("`{link}` is not a link: expected `TARGET::LINK`"))),
        }
    }
}

/// Makes links.
pub(super) fn run(container: &Container, links: &[Link], report: &mut Report) -> Result<()> {
    let mut seen: Vec<&Link> = Vec::new();
    for link in links {
        if seen.contains(&link) {
            continue;
        }
        seen.push(link);
        let Link { target, path } = link;
        let made = container.put_link(Path::new(path), target).map_err(Error::io(format!(
            "make the link `{path}` to `{target}` in the container"
        )))?;
        report.note(format!(
            "link `{path}` to `{target}`{}",
            if made { "" } else { " was there" }
        ));
    }
    Ok(())
}
