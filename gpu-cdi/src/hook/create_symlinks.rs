use std::path::Path;

use super::{Container, Error, Report, Result};

/// Makes links, each given as `target::link`.
pub(super) fn run(container: &Container, links: &[String], report: &mut Report) -> Result<()> {
    let mut seen: Vec<&String> = Vec::new();
    for link in links {
        if seen.contains(&link) {
            continue;
        }
        seen.push(link);
        let (target, path) = match link.split("::").collect::<Vec<_>>()[..] {
            [target, path] if !target.is_empty() && !path.is_empty() => (target, path),
            _ => return Err(Error::usage(format!("`{link}` is not a link: expected `TARGET::LINK`"))),
        };
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
