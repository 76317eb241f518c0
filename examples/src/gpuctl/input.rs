//! What a command reads of a file that is named on its command line.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use anyhow::{Context as _, ensure};

/// Most bytes of it: more than any inventory, CDI file or file of configurations has.
const MOST: u64 = 16 << 20;

/// The text of a file; `-` is standard input.
pub(super) fn read(path: &Path) -> anyhow::Result<String> {
    let what = || format!("cannot read `{}`", path.display());
    let from: Box<dyn io::Read> = if path == Path::new("-") {
        Box::new(io::stdin().lock())
    } else {
        Box::new(File::open(path).with_context(what)?)
    };
    let mut text = String::new();
    let size = from.take(MOST + 1).read_to_string(&mut text).with_context(what)?;
    ensure!(size as u64 <= MOST, "`{}` has more than {MOST} bytes", path.display());
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_such_a_file_can_hold() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "text").unwrap();
        assert_eq!(read(file.path()).unwrap(), "text");
        file.as_file().set_len(MOST + 1).unwrap();
        assert!(
            read(file.path())
                .unwrap_err()
                .to_string()
                .ends_with("has more than 16777216 bytes")
        );
        let error = read(Path::new("/nowhere")).unwrap_err();
        assert_eq!(error.to_string(), "cannot read `/nowhere`");
    }
}
