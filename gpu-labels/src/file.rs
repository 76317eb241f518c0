use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::Labels;

/// How the names of new files begin until they are whole. They are beside the old ones, since a rename does not leave a file
/// system, and hidden: Node Feature Discovery reads no such files.
const TEMPORARY: &str = ".gpu-labels-";

/// A feature file, from which Node Feature Discovery takes labels.
///
/// It is replaced as a whole or not at all, and stays when the program ends, so that nothing takes the labels off the node
/// while it is started anew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeatureFile {
    path: PathBuf,
}

impl FeatureFile {
    /// The file at this path, which need not be there.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file say these labels; `false` where it does already, and nothing is written.
    ///
    /// # Errors
    /// Where the file cannot be replaced; then it is as it was.
    pub fn publish(&self, labels: &Labels) -> io::Result<bool> {
        let text = labels.to_string();
        match fs::metadata(&self.path) {
            // A device or a pipe is not to be replaced, and reading a pipe would wait.
            Ok(present) if !present.is_file() => return Err(io::Error::other("it is there and no file")),
            Ok(present) if present.len() == text.len() as u64 && self.says(&text) => return Ok(false),
            _ => {}
        }
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        sweep(folder);
        let mut file = tempfile::Builder::new()
            .prefix(TEMPORARY)
            .permissions(fs::Permissions::from_mode(0o644))
            .tempfile_in(folder)
            // Without the file's own name, which is another one each time: who repeats the message would repeat it as new.
            .map_err(|error| io::Error::from(error.kind()))?;
        file.as_file().lock()?;
        file.as_file_mut().write_all(text.as_bytes())?;
        file.as_file().set_permissions(fs::Permissions::from_mode(0o644))?; // whatever the umask is
        file.as_file().sync_all()?;
        file.persist(&self.path).map_err(|error| error.error)?;
        Ok(true)
    }

    fn says(&self, text: &str) -> bool {
        fs::read(&self.path).is_ok_and(|bytes| bytes == text.as_bytes())
    }

    /// Removes the file; that there is none is fine.
    ///
    /// # Errors
    /// Where it cannot be removed.
    pub fn withdraw(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Removes what processes left that were killed while they wrote. One that still writes has its file locked.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        let path = entry.path();
        if is_file
            && entry.file_name().as_encoded_bytes().starts_with(TEMPORARY.as_bytes())
            && fs::File::open(&path).is_ok_and(|file| file.try_lock().is_ok())
        {
            // Nobody reads it if it stays.
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_only_by_other_labels_and_leaves_nothing_beside_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = FeatureFile::new(folder.path().join("gfd"));
        let labels = |text| Labels::parse_feature_file(text).unwrap();
        assert!(file.publish(&labels("nvidia.com/gpu.count=8")).unwrap());
        assert!(!file.publish(&labels("nvidia.com/gpu.count=8")).unwrap());
        assert!(file.publish(&labels("nvidia.com/gpu.count=7")).unwrap());
        assert_eq!(fs::read_to_string(file.path()).unwrap(), "nvidia.com/gpu.count=7\n");
        assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        file.withdraw().unwrap();
        file.withdraw().unwrap();
        assert!(!file.path().exists());
    }

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_another_writes_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in [".gpu-labels-dead", ".gpu-labels-busy", ".theirs"] {
            fs::write(path(name), "nvidia.com/gpu.c").unwrap();
        }
        let busy = fs::File::open(path(".gpu-labels-busy")).unwrap();
        busy.lock().unwrap();
        FeatureFile::new(path("gfd")).publish(&Labels::default()).unwrap();
        let names = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        assert_eq!(names, [".gpu-labels-busy", ".theirs", "gfd"]);
    }

    #[test]
    fn a_link_is_replaced_and_what_it_leads_to_is_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let (other, path) = (folder.path().join("other"), folder.path().join("gfd"));
        fs::write(&other, "theirs").unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        FeatureFile::new(&path)
            .publish(&Labels::parse_feature_file("nvidia.com/gpu.count=8").unwrap())
            .unwrap();
        assert_eq!(fs::read_to_string(&other).unwrap(), "theirs");
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
    }

    #[test]
    fn what_is_no_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        for path in [path.as_path(), Path::new("/dev/null"), folder.path()] {
            let error = FeatureFile::new(path).publish(&Labels::default()).unwrap_err();
            assert_eq!(error.to_string(), "it is there and no file");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_folder_that_takes_no_files_is_an_error() {
        // Nobody makes files in there, root included.
        let file = FeatureFile::new("/proc/self/gfd");
        let say = || file.publish(&Labels::default()).unwrap_err().to_string();
        assert_eq!(say(), say());
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error_and_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = FeatureFile::new(folder.path().join("features.d/gfd"));
        let error = file.publish(&Labels::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
