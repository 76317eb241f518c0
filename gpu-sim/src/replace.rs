use std::{fs, io, path::Path};

use crate::{Error, Result};

/// Puts a file in the place of another as a whole: whoever reads it meanwhile finds the old one or the new one. Where that
/// fails, the old one stays and nothing of the new one does.
pub(crate) fn replace(path: &Path, write: impl FnOnce(&mut fs::File) -> io::Result<()>) -> Result<()> {
    let new = path.with_extension("new");
    let put = || {
        let mut file = fs::File::create(&new)?;
        write(&mut file)?;
        fs::rename(&new, path)
    };
    put().map_err(|error| {
        let _ = fs::remove_file(&new); // the failure itself is what is told
        Error::write(path)(error)
    })
}
