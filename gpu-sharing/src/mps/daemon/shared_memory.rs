/// How large the `tmpfs` is that MPS servers and clients share, in KiB: half the machine's memory, as `/proc/meminfo` tells;
/// 64 MiB where it does not.
///
/// ```
/// use gpu_sharing::mps::daemon::shared_memory_kib;
/// assert_eq!(shared_memory_kib("MemTotal:       16384 kB\nMemFree: 1 kB\n"), 8192);
/// assert_eq!(shared_memory_kib(""), 65536);
/// ```
pub fn shared_memory_kib(meminfo: &str) -> u64 {
    let total = |line: &str| {
        line.strip_prefix("MemTotal:")?
            .trim()
            .strip_suffix("kB")?
            .trim()
            .parse()
            .ok()
    };
    let total: Option<u64> = meminfo.lines().find_map(total);
    total.map_or(64 << 10, |kib| kib / 2)
}
