use std::{collections::BTreeSet, fs, path::Path};

use object::{
    Object as _, ObjectSymbol as _,
    read::elf::{Dyn as _, ElfFile64, FileHeader as _},
};

/// Names in the library's dynamic symbol table that it defines itself.
fn exported() -> BTreeSet<String> {
    let library = gpu_sim::library().expect("the library was built with this test");
    let bytes = fs::read(library).expect("the library can be read");
    let file = ElfFile64::<object::LittleEndian>::parse(&*bytes).expect("the library is an ELF file");
    file.dynamic_symbols()
        .filter(object::ObjectSymbol::is_definition)
        .map(|symbol| symbol.name().expect("a symbol has a name").to_owned())
        .collect()
}

#[test]
fn every_listed_function_is_exported_and_nothing_else() {
    let listed: BTreeSet<String> = include_str!("../../nvml.symbols").lines().map(str::to_owned).collect();
    assert_eq!(exported(), listed);
}

/// Images may have nothing else, and what the driver brings needs nothing else. It takes a compiler with a static unwinder
/// (`libgcc_eh.a`), as GCC is.
#[test]
fn the_library_and_nvidia_smi_need_libc_alone() {
    for path in [gpu_sim::library().unwrap(), env!("CARGO_BIN_EXE_nvidia-smi").into()] {
        let bytes = fs::read(&path).unwrap();
        let file = ElfFile64::<object::LittleEndian>::parse(&*bytes).unwrap();
        let sections = file.elf_header().sections(file.endian(), &*bytes).unwrap();
        let (entries, link) = sections.dynamic(file.endian(), &*bytes).unwrap().unwrap();
        let strings = sections.strings(file.endian(), &*bytes, link).unwrap();
        let needed: Vec<_> = entries
            .iter()
            .filter(|entry| entry.tag(file.endian()) == object::elf::DT_NEEDED)
            .map(|entry| String::from_utf8_lossy(entry.string(file.endian(), strings).unwrap()))
            .filter(|name| !name.starts_with("libc.so.") && !name.starts_with("ld-linux"))
            .collect();
        assert!(needed.is_empty(), "{}: {needed:?}", path.display());
    }
}

/// The names that nvml-wrapper-sys binds stand in its source as `.get(b"name\0")`.
#[test]
fn every_function_that_nvml_wrapper_sys_binds_is_listed() {
    let bindings = bindings();
    let bound: BTreeSet<&str> = bindings
        .split(r#".get(b""#)
        .skip(1)
        .filter_map(|rest| rest.split_once(r"\0"))
        .map(|(name, _)| name)
        .collect();
    assert!(bound.len() > 350, "found {}", bound.len());
    let listed: BTreeSet<&str> = include_str!("../../nvml.symbols").lines().collect();
    assert_eq!(bound.difference(&listed).collect::<Vec<_>>(), Vec::<&&str>::new());
}

/// Source of the bindings that this workspace uses, as cargo has unpacked it.
fn bindings() -> String {
    let cargo = std::env::var_os("CARGO").expect("cargo runs the tests");
    let output = std::process::Command::new(cargo)
        // Without a platform, metadata would want crates that only others use, which need not be here.
        .args(["metadata", "--format-version=1", "--offline", "--filter-platform"])
        .arg(format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
        .arg("--manifest-path")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"))
        .output()
        .expect("cargo metadata runs");
    let metadata = String::from_utf8(output.stdout).expect("cargo metadata is UTF-8");
    let manifest = metadata
        .split('"')
        .find(|text| text.ends_with("/Cargo.toml") && text.contains("/nvml-wrapper-sys-"))
        .expect("nvml-wrapper-sys is a dependency");
    let source = manifest.replace("Cargo.toml", "src/bindings.rs");
    fs::read_to_string(&source).unwrap_or_else(|error| panic!("{source}: {error}"))
}

/// What the vendor's programs called and looked up, as recorded: device plugin and GPU Feature Discovery v0.20.0, container
/// toolkit v1.20.0, mig-parted v0.15.0, DRA driver.
#[test]
fn every_function_that_the_vendors_programs_use_is_modelled_or_at_least_there() {
    let exported = exported();
    let called: BTreeSet<&str> = include_str!("../upstream/nvml-symbols/called.txt")
        .lines()
        .filter_map(|line| line.split_once(": ").map(|(name, _)| name))
        .collect();
    let looked_up = include_str!("../upstream/nvml-symbols/looked-up.txt").lines();
    assert!(called.len() > 50, "found {}", called.len());
    let wanted: Vec<&str> = called.iter().copied().chain(looked_up).collect();
    let absent: Vec<_> = wanted.iter().filter(|name| !exported.contains(**name)).collect();
    assert_eq!(absent, [] as [&&str; 0]);

    // A function that is not modelled stands in no source file.
    let sources = sources(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/nvml")));
    let unmodelled: Vec<_> = called
        .iter()
        .filter(|name| !sources.contains(&format!("fn {name}(")))
        .collect();
    assert_eq!(unmodelled, [] as [&&str; 0]);
}

fn sources(folder: &Path) -> String {
    let entries = fs::read_dir(folder).expect("the sources are there");
    let paths = entries.map(|entry| entry.expect("an entry can be read").path());
    let text = |path: std::path::PathBuf| {
        if path.is_dir() {
            sources(&path)
        } else {
            fs::read_to_string(path).expect("a source can be read")
        }
    };
    paths.map(text).collect()
}
