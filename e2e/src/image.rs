//! Container images, written without a container engine or a registry.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    io::Write,
    os::unix::fs::PermissionsExt,
    path::{Component, Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use sha2::{Digest, Sha256};

/// The files of an image, as one layer.
///
/// Paths are absolute, as a container sees them. Folders above an entry appear by themselves (mode 0755), owner and
/// group are root, and times are the epoch, so the same entries make the same bytes.
#[derive(Clone, Debug, Default)]
pub struct Layer {
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Clone, Debug)]
enum Entry {
    Dir { mode: u32 },
    File { mode: u32, content: Vec<u8> },
    Symlink { target: PathBuf },
}

impl Layer {
    /// A layer with nothing in it.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a folder.
    ///
    /// # Errors
    /// If the path is not absolute, or has `.` or `..` in it. So it is for every path of a layer.
    pub fn dir(&mut self, path: impl AsRef<Path>, mode: u32) -> Result<&mut Self> {
        self.add(path.as_ref(), Entry::Dir { mode })
    }

    /// Adds a file with this content.
    ///
    /// # Errors
    /// See [`Layer::dir`].
    pub fn file(&mut self, path: impl AsRef<Path>, mode: u32, content: impl Into<Vec<u8>>) -> Result<&mut Self> {
        let content = content.into();
        self.add(path.as_ref(), Entry::File { mode, content })
    }

    /// Adds a symbolic link; the target is kept as it is written.
    ///
    /// # Errors
    /// See [`Layer::dir`].
    pub fn symlink(&mut self, path: impl AsRef<Path>, target: impl Into<PathBuf>) -> Result<&mut Self> {
        let target = target.into();
        self.add(path.as_ref(), Entry::Symlink { target })
    }

    /// Adds a copy of a file of this machine, with its permission bits. A link on this machine is followed.
    ///
    /// # Errors
    /// If the file cannot be read, and see [`Layer::dir`].
    pub fn host_file(&mut self, path: impl AsRef<Path>, host: impl AsRef<Path>) -> Result<&mut Self> {
        let host = host.as_ref();
        let content = fs::read(host).with_context(|| format!("cannot read `{}`", host.display()))?;
        let mode = mode_of(&fs::metadata(host).with_context(|| format!("cannot stat `{}`", host.display()))?);
        self.file(path, mode, content)
    }

    /// Adds a copy of a program of this machine, and of the shared libraries and the loader that it needs to start,
    /// each at its path here. What it opens later by name (`dlopen`) is not known here: add it with
    /// [`Layer::host_file`].
    ///
    /// # Errors
    /// If a library is missing on this machine, or `ldd` fails; and see [`Layer::host_file`].
    pub fn host_program(&mut self, path: impl AsRef<Path>, host: impl AsRef<Path>) -> Result<&mut Self> {
        let host = host.as_ref();
        self.host_file(path, host)?;
        for library in shared_libraries(host)? {
            self.host_file(&library, &library)?;
        }
        Ok(self)
    }

    /// Adds a copy of a folder of this machine and all below it; links stay links.
    ///
    /// # Errors
    /// If something cannot be read or is neither file, folder nor link, and see [`Layer::dir`].
    pub fn host_tree(&mut self, path: impl AsRef<Path>, host: impl AsRef<Path>) -> Result<&mut Self> {
        let (path, host) = (path.as_ref(), host.as_ref());
        let metadata = fs::symlink_metadata(host).with_context(|| format!("cannot stat `{}`", host.display()))?;
        let kind = metadata.file_type();
        if kind.is_symlink() {
            let target = fs::read_link(host).with_context(|| format!("cannot read the link `{}`", host.display()))?;
            self.symlink(path, target)
        } else if kind.is_file() {
            self.host_file(path, host)
        } else if kind.is_dir() {
            self.dir(path, mode_of(&metadata))?;
            let entries = fs::read_dir(host).with_context(|| format!("cannot list `{}`", host.display()))?;
            for entry in entries {
                let entry = entry.with_context(|| format!("cannot list `{}`", host.display()))?;
                self.host_tree(path.join(entry.file_name()), entry.path())?;
            }
            Ok(self)
        } else {
            bail!("`{}` is neither a file, a folder nor a link", host.display())
        }
    }

    fn add(&mut self, path: &Path, entry: Entry) -> Result<&mut Self> {
        let Ok(relative) = path.strip_prefix("/") else {
            bail!("the path `{}` in an image is not absolute", path.display());
        };
        ensure!(
            relative
                .components()
                .all(|component| matches!(component, Component::Normal(_))),
            "the path `{}` in an image has `.` or `..` in it",
            path.display()
        );
        for above in relative
            .ancestors()
            .skip(1)
            .filter(|above| !above.as_os_str().is_empty())
        {
            match self.entries.get(above) {
                None => {
                    self.entries.insert(above.to_owned(), Entry::Dir { mode: 0o755 });
                }
                Some(Entry::Dir { .. }) => break,
                // Allowed, as in any file system: `/lib -> usr/lib`, then `/lib/x`; but which comes first in the
                // archive would decide what it means, so it is refused.
                Some(_) => bail!(
                    "`{}` is below `/{}`, which is no folder",
                    path.display(),
                    above.display()
                ),
            }
        }
        ensure!(
            !relative.as_os_str().is_empty(),
            "the path `/` of an image is always there"
        );
        self.entries.insert(relative.to_owned(), entry);
        Ok(self)
    }

    fn tar(&self) -> Result<Vec<u8>> {
        let mut archive = tar::Builder::new(Vec::new());
        for (path, entry) in &self.entries {
            append(&mut archive, path, entry).with_context(|| format!("cannot archive `/{}`", path.display()))?;
        }
        Ok(archive.into_inner()?)
    }
}

/// The absolute paths of what a program needs to start, by `ldd`; none for a static one.
pub(crate) fn shared_libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let shown = format!("ldd {}", program.display());
    let output = Command::new("ldd")
        .arg(program)
        .output()
        .with_context(|| format!("cannot run `{shown}`"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    if complaint.contains("not a dynamic executable") || text.contains("statically linked") {
        return Ok(Vec::new());
    }
    ensure!(
        output.status.success(),
        "`{shown}` failed ({}): {}",
        output.status,
        complaint.trim()
    );
    parse_ldd(&text).with_context(|| format!("`{shown}`"))
}

/// Lines are `libm.so.6 => /lib/x/libm.so.6 (0x…)`, `/lib64/ld-linux-x86-64.so.2 (0x…)`, or `linux-vdso.so.1 (0x…)`,
/// which is the kernel's and no file.
fn parse_ldd(text: &str) -> Result<Vec<PathBuf>> {
    let mut libraries = Vec::new();
    for line in text.lines() {
        ensure!(
            !line.contains("not found"),
            "a shared library is missing: {}",
            line.trim()
        );
        libraries.extend(
            line.split_whitespace()
                .find(|word| word.starts_with('/'))
                .map(PathBuf::from),
        );
    }
    Ok(libraries)
}

fn mode_of(metadata: &fs::Metadata) -> u32 {
    metadata.permissions().mode() & 0o7777
}

fn append(archive: &mut tar::Builder<Vec<u8>>, path: &Path, entry: &Entry) -> Result<()> {
    match entry {
        Entry::Dir { mode } => {
            let mut header = header(tar::EntryType::Directory, *mode, 0);
            archive.append_data(&mut header, path, [].as_slice())?;
        }
        Entry::File { mode, content } => {
            let mut header = header(tar::EntryType::Regular, *mode, content.len());
            archive.append_data(&mut header, path, content.as_slice())?;
        }
        Entry::Symlink { target } => {
            let mut header = header(tar::EntryType::Symlink, 0o777, 0);
            archive.append_link(&mut header, path, target)?;
        }
    }
    Ok(())
}

fn header(kind: tar::EntryType, mode: u32, size: usize) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size as u64);
    header
}

/// An image of one layer, for `ctr --namespace k8s.io images import`.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// The files.
    pub layer: Layer,
    /// The program to run, with its first arguments; a pod's `command` replaces it.
    pub entrypoint: Vec<String>,
    /// Further arguments; a pod's `args` replace them.
    pub cmd: Vec<String>,
    /// `NAME=value` each.
    pub env: Vec<String>,
    /// Full names, registry and tag included (`localhost/gpu-e2e/busybox:test`). A pod that names one needs
    /// `imagePullPolicy: Never` or `IfNotPresent`.
    pub tags: Vec<String>,
}

impl Image {
    /// Writes the image as a `docker save` archive. The same image makes the same bytes.
    ///
    /// # Errors
    /// If the image has no tag, or the writer fails.
    pub fn write(&self, out: impl Write) -> Result<()> {
        ensure!(!self.tags.is_empty(), "an image without a tag cannot be named by a pod");
        let layer = self.layer.tar()?;
        let layer_digest = hex_sha256(&layer);
        let config = serde_json::to_vec(&self.config(&layer_digest))?;
        let config_name = format!("{}.json", hex_sha256(&config));
        let layer_name = format!("{layer_digest}/layer.tar");
        let manifest = json!([{ "Config": config_name, "RepoTags": self.tags, "Layers": [layer_name] }]);

        let mut archive = tar::Builder::new(out);
        let manifest = serde_json::to_vec(&manifest)?;
        for (name, content) in [
            ("manifest.json", &manifest),
            (&config_name, &config),
            (&layer_name, &layer),
        ] {
            let mut header = header(tar::EntryType::Regular, 0o644, content.len());
            archive.append_data(&mut header, name, content.as_slice())?;
        }
        archive.into_inner()?.flush()?;
        Ok(())
    }

    /// Writes the image to a file; see [`Image::write`].
    ///
    /// # Errors
    /// If the file cannot be written, and see [`Image::write`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let write = || self.write(std::io::BufWriter::new(fs::File::create(path)?));
        write().with_context(|| format!("cannot write the image {:?} to `{}`", self.tags, path.display()))
    }

    fn config(&self, layer_digest: &str) -> serde_json::Value {
        json!({
            "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": { "Entrypoint": self.entrypoint, "Cmd": self.cmd, "Env": self.env, "WorkingDir": "/" },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer_digest}")] },
            "history": [{ "created": "1970-01-01T00:00:00Z", "created_by": "gpu-e2e" }],
        })
    }
}

fn hex_sha256(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        write!(hex, "{byte:02x}").expect("writing to a string cannot fail");
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(layer: &Layer) -> Vec<String> {
        layer.entries.keys().map(|path| path.display().to_string()).collect()
    }

    fn image() -> Image {
        let mut layer = Layer::new();
        layer
            .file("/bin/tool", 0o755, "x")
            .unwrap()
            .symlink("/bin/other", "tool")
            .unwrap();
        Image {
            layer,
            entrypoint: vec!["/bin/tool".into()],
            tags: vec!["localhost/a:1".into()],
            ..Image::default()
        }
    }

    #[test]
    fn folders_above_an_entry_appear_by_themselves_and_first() {
        let mut layer = Layer::new();
        layer.file("/usr/lib/x/libx.so", 0o644, "").unwrap();
        assert_eq!(paths(&layer), ["usr", "usr/lib", "usr/lib/x", "usr/lib/x/libx.so"]);
    }

    #[test]
    fn paths_that_leave_the_image_are_refused() {
        for path in ["bin/tool", "/../etc/passwd", "/a/../b", "/"] {
            assert!(Layer::new().file(path, 0o644, "").is_err(), "`{path}` was accepted");
        }
    }

    #[test]
    fn nothing_lies_below_a_link_or_a_file() {
        let mut layer = Layer::new();
        layer.symlink("/lib", "usr/lib").unwrap();
        let error = layer.file("/lib/ld.so", 0o755, "").unwrap_err();
        assert_eq!(error.to_string(), "`/lib/ld.so` is below `/lib`, which is no folder");
    }

    #[test]
    fn the_libraries_of_a_program_are_the_paths_that_ldd_prints() {
        let text =
            "\tlinux-vdso.so.1 (0x7)\n\tlibc.so.6 => /lib/x/libc.so.6 (0x7)\n\t/lib64/ld-linux-x86-64.so.2 (0x7)\n";
        assert_eq!(
            parse_ldd(text).unwrap(),
            ["/lib/x/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from)
        );
        assert!(parse_ldd("\tlibnone.so => not found\n").is_err());
    }

    #[test]
    fn the_same_image_makes_the_same_bytes() {
        let (mut first, mut second) = (Vec::new(), Vec::new());
        image().write(&mut first).unwrap();
        image().write(&mut second).unwrap();
        assert!(first == second);
        assert_eq!(
            hex_sha256(b""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn the_manifest_names_config_layer_and_every_tag() {
        let mut image = image();
        image.tags.push("localhost/b:2".into());
        let mut bytes = Vec::new();
        image.write(&mut bytes).unwrap();
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut names = Vec::new();
        let mut manifest = None;
        for entry in archive.entries().unwrap() {
            let entry = entry.unwrap();
            names.push(entry.path().unwrap().display().to_string());
            if names.len() == 1 {
                manifest = Some(serde_json::from_reader::<_, serde_json::Value>(entry).unwrap());
            }
        }
        let manifest = &manifest.unwrap()[0];
        assert_eq!(manifest["RepoTags"], json!(["localhost/a:1", "localhost/b:2"]));
        assert_eq!(json!(names[1..]), json!([manifest["Config"], manifest["Layers"][0]]));
    }

    #[test]
    fn an_image_without_a_tag_is_refused() {
        assert!(
            Image {
                tags: vec![],
                ..image()
            }
            .write(Vec::new())
            .is_err()
        );
    }
}
