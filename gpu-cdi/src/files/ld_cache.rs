//! The cache of the dynamic loader, `/etc/ld.so.cache` (glibc, `sysdeps/generic/dl-cache.h`).

use std::collections::HashSet;

/// Most bytes that a cache may have; real ones have some 100 KiB.
pub(super) const LIMIT: u64 = 64 << 20;
/// Most bytes of a path, as in the kernel: all entries could point to one string as long as the cache.
const LONGEST_PATH: usize = 4096;

const OLD_MAGIC: &[u8] = b"ld.so-1.7.0";
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
/// Magic, number of entries, size of the strings, and 20 bytes that say nothing here.
const HEADER: usize = 20 + 4 + 4 + 20;
/// Flags, offset of the name, offset of the path, two words that say nothing here.
const ENTRY: usize = 24;
const OLD_HEADER: usize = 12 + 4;
const OLD_ENTRY: usize = 12;

/// Set in both kinds of ELF entries: those of no particular C library (1) and those of glibc (3), which nearly all are.
const TYPE_ELF: u32 = 1;
const ARCHITECTURE_MASK: u32 = 0xff00;
/// The 64-bit architectures that the driver exists for: x86-64, aarch64 and ppc64le.
const ARCHITECTURES: [u32; 3] = [0x0300, 0x0a00, 0x0500];

/// The paths of the 64-bit libraries in a cache, in its order, each once.
///
/// An entry that points outside the cache, or to what is too long for a path, is left out.
pub(crate) fn libraries(content: &[u8]) -> Result<Vec<String>, &'static str> {
    let cache = new_part(content).ok_or("not a loader cache of a known format")?;
    let count = word(cache, 20).ok_or("a loader cache cut short")? as usize;
    let entries = cache.get(HEADER..).ok_or("a loader cache cut short")?;
    let (mut paths, mut seen) = (Vec::new(), HashSet::new());
    for i in 0..count {
        let Some(entry) = i.checked_mul(ENTRY).and_then(|at| entries.get(at..)?.get(..ENTRY)) else {
            return Err("a loader cache cut short");
        };
        let flags = word(entry, 0).unwrap_or_default();
        if flags & TYPE_ELF == 0 || !ARCHITECTURES.contains(&(flags & ARCHITECTURE_MASK)) {
            continue;
        }
        // Offsets count from the start of the new part.
        if let Some(path) = word(entry, 8).and_then(|at| string(cache, at as usize))
            && path.starts_with('/')
            && seen.insert(path)
        {
            paths.push(path.to_owned());
        }
    }
    Ok(paths)
}

/// The part in the present format; older glibc put the one before it in front.
fn new_part(content: &[u8]) -> Option<&[u8]> {
    if content.starts_with(MAGIC) {
        return Some(content);
    }
    if !content.starts_with(OLD_MAGIC) {
        return None;
    }
    let count = word(content, 12)? as usize;
    let end = count.checked_mul(OLD_ENTRY)?.checked_add(OLD_HEADER)?;
    // The new header is aligned to 8 bytes.
    content
        .get(end.checked_next_multiple_of(8)?..)
        .filter(|part| part.starts_with(MAGIC))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

fn string(bytes: &[u8], at: usize) -> Option<&str> {
    let bytes = bytes.get(at..)?;
    let end = bytes.iter().take(LONGEST_PATH).position(|&b| b == 0)?;
    std::str::from_utf8(&bytes[..end]).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A cache in the present format with these flags and paths.
    fn cache(entries: &[(u32, &str)]) -> Vec<u8> {
        let count = u32::try_from(entries.len()).unwrap();
        let mut strings = Vec::new();
        let mut table = Vec::new();
        let start = HEADER + entries.len() * ENTRY;
        for (flags, path) in entries {
            let offset = u32::try_from(start + strings.len()).unwrap();
            for value in [*flags, offset, offset, 0, 0, 0] {
                table.extend(value.to_ne_bytes());
            }
            strings.extend(path.as_bytes());
            strings.push(0);
        }
        let mut content = MAGIC.to_vec();
        content.extend(count.to_ne_bytes());
        content.extend(u32::try_from(strings.len()).unwrap().to_ne_bytes());
        content.extend([0; 20]);
        content.extend(table);
        content.extend(strings);
        content
    }

    #[test]
    fn only_64_bit_libraries_are_listed_each_once() {
        let content = cache(&[
            (0x0303, "/opt/lib/libcuda.so.1"),
            (0x0302, "/opt/lib/a.out"),
            (0x0003, "/opt/lib32/libcuda.so.1"),
            (0x0a03, "/opt/arm/libcuda.so.1"),
            (0x0301, "/opt/lib/any-libc"),
            (0x0301, "/opt/lib/libcuda.so.1"),
            (0x0301, "relative"),
        ]);
        assert_eq!(
            libraries(&content).unwrap(),
            ["/opt/lib/libcuda.so.1", "/opt/arm/libcuda.so.1", "/opt/lib/any-libc"]
        );
    }

    #[test]
    fn a_path_too_long_for_the_kernel_is_left_out() {
        let path = |length: usize| format!("/{}", "a".repeat(length - 1));
        let (longest, longer) = (path(LONGEST_PATH - 1), path(LONGEST_PATH));
        let content = cache(&[(0x0303, &longer), (0x0303, &longest)]);
        assert_eq!(libraries(&content).unwrap(), [longest]);
    }

    #[test]
    fn the_present_format_is_found_behind_the_old_one() {
        let mut content = OLD_MAGIC.to_vec();
        content.push(0);
        content.extend(1u32.to_ne_bytes());
        content.extend([0; OLD_ENTRY]);
        content.extend([0; 4]);
        content.extend(cache(&[(0x0301, "/a")]));
        assert_eq!(libraries(&content).unwrap(), ["/a"]);
    }

    #[test]
    #[ignore = "needs glibc's cache of this machine"]
    fn this_machines_cache_is_read() {
        let libraries = libraries(&std::fs::read("/etc/ld.so.cache").unwrap()).unwrap();
        assert!(libraries.iter().all(|path| path.starts_with('/')), "{libraries:?}");
        assert!(
            libraries.iter().any(|path| path.ends_with("/libc.so.6")),
            "{libraries:?}"
        );
    }

    proptest! {
        #[test]
        fn no_content_makes_it_panic(content in prop::collection::vec(any::<u8>(), 0..300), cut in 0usize..300) {
            let _ = libraries(&content);
            let mut content = cache(&[(0x0301, "/a"), (0x0301, "/b")]);
            content.truncate(cut);
            let _ = libraries(&content);
        }
    }
}
