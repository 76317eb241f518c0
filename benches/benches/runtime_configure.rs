//! The edit of a containerd file of 2,000 lines: parsed, planned, checked by parsing the result, and taken back.
//!
//! The reference in the same run is one parse of the file by `toml_edit`, of which an edit needs at least two.

use std::fmt::Write as _;

use criterion::{Criterion, criterion_group, criterion_main};
use gpu_runtime_config::{
    Cdi, Settings, Snapshot,
    containerd::{self, Files, Placement},
};

const LINES: usize = 2000;

/// A file with a registry's hosts, as large sites generate them.
fn file() -> String {
    let mut text = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\ndefault_runtime_name = \"runc\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n\
         [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\nSystemdCgroup = true # keep me\n"
        .to_owned();
    let mut lines = text.lines().count();
    for i in 0.. {
        if lines + 4 > LINES {
            break;
        }
        writeln!(
            text,
            "# mirror {i}\n[plugins.\"io.containerd.grpc.v1.cri\".registry.mirrors.\"host{i}.example.com\"]\n  \
             endpoint = [\"https://a{i}.example.com\", \"https://b{i}.example.com\"]\n"
        )
        .expect("text");
        lines += 4;
    }
    text
}

fn configure(criterion: &mut Criterion) {
    let text = file();
    assert!((LINES - 4..=LINES).contains(&text.lines().count()));
    let files = Files {
        main: Snapshot::new("/etc/containerd/config.toml", text.clone()),
        drop_in: Snapshot::absent("/etc/containerd/conf.d/99-nvidia.toml"),
        imported: vec![],
        other: vec![],
    };
    let mut settings = Settings::vendor("/usr/local/nvidia/toolkit", "nvidia", true);
    settings.cdi = Some(Cdi::default());
    let plan = |placement| {
        let version = "1.7".parse().expect("a version");
        containerd::configure(&files, Some(version), placement, &settings, None).expect("a plan")
    };
    assert!(!plan(Placement::Auto).changes.is_empty());

    let mut group = criterion.benchmark_group("configure 2,000 lines");
    group.bench_function("reference: one parse", |bencher| {
        bencher.iter(|| toml_edit::Document::parse(text.as_str()).expect("TOML"));
    });
    group.bench_function("configure", |bencher| bencher.iter(|| plan(Placement::Auto)));
    group.finish();
}

criterion_group! { name = benches; config = Criterion::default().sample_size(20); targets = configure }
criterion_main!(benches);
