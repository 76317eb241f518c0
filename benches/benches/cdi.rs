//! A node's CDI file: 8 H100, each in seven MIG devices, from NVML and the driver root to the text.
//!
//! The reference in the same run is the reading of the GPUs alone, which is what NVML costs; the rest is ours. The driver root
//! has 200 libraries beside the simulated driver's own files. The vendor's program takes 180 ms for 32 MIG devices (recorded on
//! two cores, with a library that costs 5 ms).

use std::fs;

use criterion::{Criterion, criterion_group, criterion_main};
use gpu_benches::{GPUS, SEVENTHS, divided};
use gpu_cdi::{DeviceRule, DiscoverConfig, DriverFiles, Format, GenerateOptions};
use gpu_core::nvml::{Library, LibrarySearch};

/// About as many as a driver brings; each as long as a page, and none that can be read as a library.
const LIBRARIES: usize = 200;

fn cdi(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let node = divided(&folder.path().join("node"), &SEVENTHS).expect("a divided node");
    let library = Library::open(&LibrarySearch {
        library: Some(node.library()),
        driver_root: None,
    })
    .expect("the driver's library");
    let inventory = || library.inventory(&node.root()).expect("the GPUs");
    let version = inventory().driver.expect("a driver").version.to_string();
    let libraries = node.root().join("usr/lib/x86_64-linux-gnu");
    fs::create_dir_all(&libraries).expect("a folder");
    for i in 0..LIBRARIES {
        fs::write(libraries.join(format!("libnvidia-made-up-{i}.so.{version}")), [0; 4096]).expect("a file");
    }
    fs::write(libraries.join(format!("libcuda.so.{version}")), [0; 4096]).expect("a file");

    let mut config = DiscoverConfig::new(node.root());
    config.sys_root = node.root();
    config.device_rule = DeviceRule::AnyFile;
    config.driver_version = Some(version);
    let files = || DriverFiles::discover(&config).expect("a driver root");
    let options = GenerateOptions::default();

    let generated = gpu_cdi::generate(&inventory(), &files(), &options).expect("a spec");
    assert_eq!(generated.skipped, []);
    assert_eq!(
        generated.spec.devices.len(),
        2 * GPUS * SEVENTHS.len() + 1,
        "two names each, and `all`"
    );

    let mut group = criterion.benchmark_group("cdi 8x7 MIG");
    group.bench_function("reference: the GPUs alone", |bencher| bencher.iter(inventory));
    group.bench_function("the driver root alone", |bencher| bencher.iter(files));
    let (read, found) = (inventory(), files());
    group.bench_function("the spec alone", |bencher| {
        bencher.iter(|| gpu_cdi::generate(&read, &found, &options).expect("a spec"));
    });
    group.bench_function("all, to the text", |bencher| {
        bencher.iter(|| {
            let generated = gpu_cdi::generate(&inventory(), &files(), &options).expect("a spec");
            generated.spec.to_text(Format::Yaml).expect("YAML")
        });
    });
    group.finish();
}

criterion_group! { name = benches; config = Criterion::default().sample_size(20); targets = cdi }
criterion_main!(benches);
