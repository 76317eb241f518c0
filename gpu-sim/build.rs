//! Gives the library its name and its build id, and writes the NVML functions that are exported but not modelled.

mod link;

use std::{
    env,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

/// What decides how the library behaves: a change to any of it changes the build id.
const SOURCES: [&str; 9] = [
    "Cargo.toml",
    "build.rs",
    "link.rs",
    "nvml.symbols",
    "nvml.since",
    "src",
    "boards",
    "mig",
    "profiles",
];

/// `nvmlDevice…` functions whose first argument is no device.
const NOT_OF_A_DEVICE: [&str; 5] = [
    "nvmlDeviceDiscoverGpus",
    "nvmlDeviceModifyDrainState",
    "nvmlDeviceQueryDrainState",
    "nvmlDeviceRemoveGpu",
    "nvmlDeviceRemoveGpu_v2",
];

fn main() -> io::Result<()> {
    link::as_the_drivers("libnvidia-ml.so.1", "nvidia-smi");

    let mut files = Vec::new();
    for source in SOURCES {
        println!("cargo:rerun-if-changed={source}");
        collect(Path::new(source), &mut files)?;
    }
    files.sort();

    let mut hash = Fnv::default();
    let mut modelled = Vec::new();
    for file in &files {
        let text = fs::read_to_string(file)?;
        hash.add(file.as_os_str().as_encoded_bytes());
        hash.add(text.as_bytes());
        if file.starts_with("src/nvml") {
            modelled.extend(text.lines().filter_map(exported).map(str::to_owned));
        }
    }
    println!("cargo:rustc-env=GPU_SIM_BUILD_ID={:032x}", hash.0);

    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or_else(|| io::Error::other("cargo sets OUT_DIR"))?);
    // target/<profile>/build/gpu-sim-<hash>/out: the profile's folder is where cargo puts the library.
    if let Some(profile) = out.ancestors().nth(3) {
        println!("cargo:rustc-env=GPU_SIM_TARGET_DIR={}", profile.display());
    }
    fs::write(out.join("data.rs"), data(&files))?;
    fs::write(
        out.join("unmodelled.rs"),
        unmodelled(&fs::read_to_string("nvml.symbols")?, &modelled),
    )
}

/// The texts of the data files of each folder, by name.
fn data(files: &[PathBuf]) -> String {
    let mut code = String::new();
    for folder in ["boards", "mig", "profiles"] {
        let mut texts: Vec<&PathBuf> = files.iter().filter(|file| file.starts_with(folder)).collect();
        texts.sort_by_key(|file| file.file_stem().map(ToOwned::to_owned));
        let _ = writeln!(code, "pub(crate) const {}: &[&str] = &[", folder.to_uppercase());
        for file in texts {
            let _ = writeln!(
                code,
                "    include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), \"/{}\")),",
                file.display()
            );
        }
        code.push_str("];\n");
    }
    code
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            collect(&entry?.path(), files)?;
        }
    } else {
        files.push(path.to_owned());
    }
    Ok(())
}

/// The NVML function that a source line defines: `extern "C" fn nvmlX(` or `fn nvmlX(` within a macro.
fn exported(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn nvml")?;
    if before.contains("//") {
        return None;
    }
    let end = rest.find('(')?;
    let start = line.len() - rest.len() - "nvml".len();
    line.get(start..start + "nvml".len() + end)
}

fn unmodelled(symbols: &str, modelled: &[String]) -> String {
    let mut code = String::new();
    for name in symbols
        .lines()
        .filter(|name| !modelled.iter().any(|known| known == name))
    {
        let of_a_device = name.starts_with("nvmlDevice") && !NOT_OF_A_DEVICE.contains(&name);
        let (argument, call) = if of_a_device {
            // That a handle is forged or its GPU lost comes before what the GPU supports.
            ("device: Handle", "on(device, |_, _| Err(Code::NOT_SUPPORTED))")
        } else {
            ("", "answer(|_| Err(Code::NOT_SUPPORTED))")
        };
        let _ = writeln!(
            code,
            "#[unsafe(no_mangle)]\nextern \"C\" fn {name}({argument}) -> nvmlReturn_t {{ {call} }}"
        );
    }
    code
}

/// FNV-1a, 128 bit: not for secrets, only to tell builds apart.
struct Fnv(u128);

impl Default for Fnv {
    fn default() -> Self {
        Self(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d)
    }
}

impl Fnv {
    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
        }
    }
}
