//! A whole inventory of 8 GPUs with 7 MIG devices each, beside the same NVML calls made from C on the same library; and what a
//! watcher costs on a node where nothing happens.
//!
//! `cargo bench -p gpu-benches --bench inventory`. That both make the same calls in the same order is seen with a library in between
//! that notes them. It needs a C compiler, and x86-64 for that library.
#![expect(clippy::print_stdout, reason = "a benchmark tells")]

use std::{
    collections::BTreeMap,
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use gpu_benches::{SEVENTHS, compile, divided};
use gpu_core::nvml::{Library, LibrarySearch, WatchConfig, Watcher};
use gpu_sim::Node;

/// Both sides in turn, so that what else the machine does meets both.
const TURNS: usize = 15;
const ROUNDS: usize = 30;
const IDLE: Duration = Duration::from_secs(30);

fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let node = divided(&folder.path().join("node"), &SEVENTHS)?;
    let native = compile(folder.path(), "inventory", &["-std=gnu11", "-O2"], &[])?;
    let trace = folder.path().join("calls");
    let traced = traced(folder.path(), &node, &trace)?;
    let calls = compare_calls(&node, &traced, &trace, &native)?;
    println!("calls of one inventory: {calls}, the same ones from both");
    compare_times(&node, &native)?;
    watch_idle(&node, traced, &trace)
}

fn open(library: PathBuf) -> anyhow::Result<Library> {
    let library = LibrarySearch {
        library: Some(library),
        driver_root: None,
    };
    Ok(Library::open(&library)?)
}

fn compare_times(node: &Node, native: &Path) -> anyhow::Result<()> {
    let library = open(node.library())?;
    let root = node.root();
    let mut ratios = Vec::new();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..TURNS {
        let output = Command::new(native)
            .arg(node.library())
            .arg(ROUNDS.to_string())
            .output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout)?;
        let c: Vec<f64> = text.lines().map(str::parse).collect::<Result<_, _>>()?;
        let mut rust = Vec::new();
        for _ in 0..ROUNDS {
            let started = Instant::now();
            let inventory = library.inventory(&root)?;
            rust.push(started.elapsed().as_secs_f64() * 1e9);
            ensure!(
                inventory.problems.is_empty() && inventory.gpus.len() == 8,
                "{:?}",
                inventory.problems
            );
        }
        let (c, rust) = (least(&c), least(&rust));
        ratios.push(rust / c);
        ours.push(rust);
        theirs.push(c);
    }
    println!(
        "inventory: {:.2} ms, its calls from C: {:.2} ms, ratio {:.2} (bar: 1.3; medians of {TURNS} turns, of each the least of {ROUNDS} rounds; ratios {:.2} to {:.2})",
        median(&mut ours) / 1e6,
        median(&mut theirs) / 1e6,
        median(&mut ratios),
        ratios[0],
        ratios[ratios.len() - 1],
    );
    Ok(())
}

/// What the machine's other work has disturbed least.
fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Sorts them.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A library that notes its calls in the file, in front of the node's.
fn traced(folder: &Path, node: &Node, trace: &Path) -> anyhow::Result<PathBuf> {
    let symbols = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gpu-sim/nvml.symbols");
    let functions = folder.join("functions.h");
    let lines = fs::read_to_string(symbols)?;
    let line = |(number, name): (usize, &str)| format!("NVML_FUNCTION({name}, {number})\n");
    fs::write(&functions, lines.lines().enumerate().map(line).collect::<String>())?;
    let quoted = |name: &str, path: &Path| format!("-D{name}=\"{}\"", path.display());
    let defines = [
        quoted("FUNCTIONS", &functions),
        quoted("DRIVER", &node.library()),
        quoted("TRACE", trace),
    ];
    compile(folder, "trace", &["-shared", "-fPIC", "-O2"], &defines)
}

fn compare_calls(node: &Node, traced: &Path, trace: &Path, native: &Path) -> anyhow::Result<usize> {
    let status = Command::new(native).arg(traced).arg("0").status()?;
    ensure!(status.success(), "the calls from C failed");
    let theirs = between(&fs::read_to_string(trace)?);
    let library = open(traced.to_owned())?;
    fs::write(trace, "")?; // opening it asks for the driver's version
    library.inventory(&node.root())?;
    let ours = between(&fs::read_to_string(trace)?);
    let same = ours.iter().zip(&theirs).take_while(|(one, other)| one == other).count();
    ensure!(
        ours == theirs,
        "after {same} calls: {:?} and from C {:?}",
        ours.get(same..ours.len().min(same + 3)),
        theirs.get(same..theirs.len().min(same + 3))
    );
    Ok(ours.len())
}

/// The calls without the first and last ones of a session.
fn between(trace: &str) -> Vec<String> {
    let session = |name: &&str| !matches!(*name, "nvmlInit_v2" | "nvmlShutdown");
    trace.lines().filter(session).map(str::to_owned).collect()
}

/// What the watcher's threads have used of a processor while nothing happened, and how many calls it made.
fn watch_idle(node: &Node, traced: PathBuf, trace: &Path) -> anyhow::Result<()> {
    let library = Arc::new(open(traced)?);
    let inventory = library.inventory(&node.root())?;
    let config = WatchConfig {
        host_root: node.root(),
        ..WatchConfig::default()
    };
    let watcher = Watcher::start(library, inventory, config, |_| ControlFlow::Continue(()))?;
    thread::sleep(Duration::from_secs(2)); // the first reading
    let (before, calls_before) = (processor_time()?, fs::read_to_string(trace)?.lines().count());
    let started = Instant::now();
    thread::sleep(IDLE);
    let minutes = started.elapsed().as_secs_f64() / 60.0;
    let (after, calls_after) = (processor_time()?, fs::read_to_string(trace)?.lines().count());
    for (thread, time) in after {
        let used = time.saturating_sub(before.get(&thread).copied().unwrap_or_default());
        println!(
            "idle watcher, thread {thread}: {:.1} ms of a processor a minute",
            used.as_secs_f64() * 1e3 / minutes
        );
    }
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let calls = (calls_after - calls_before) as f64 / minutes;
    println!(
        "idle watcher: {calls:.0} calls a minute (gpu-health is in the simulator's wait, which looks every 50 ms; a driver's sleeps)"
    );
    watcher.stop();
    Ok(())
}

/// The processor time of the threads that gpu-core has started, by name.
fn processor_time() -> anyhow::Result<BTreeMap<String, Duration>> {
    let mut times = BTreeMap::new();
    for task in fs::read_dir("/proc/self/task")? {
        let task = task?.path();
        let name = fs::read_to_string(task.join("comm"))?.trim_end().to_owned();
        if name.starts_with("gpu-") {
            // Ticks of 10 ms in fields 14 and 15 of `stat`, nanoseconds in the first of `schedstat` where the kernel has that.
            let nanoseconds = match fs::read_to_string(task.join("schedstat")) {
                Ok(text) => text.split(' ').next().and_then(|text| text.parse::<u64>().ok()),
                Err(_) => None,
            };
            let ticks = || -> Option<u64> {
                let stat = fs::read_to_string(task.join("stat")).ok()?;
                let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
                Some((fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?) * 10_000_000)
            };
            let used = nanoseconds.or_else(ticks).context("no processor time")?;
            *times.entry(name).or_default() += Duration::from_nanos(used);
        }
    }
    Ok(times)
}
