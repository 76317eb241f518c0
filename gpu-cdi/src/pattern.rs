//! Names with stars.

/// Whether `name` fits `pattern`, in which `*` stands for any characters and all else for itself.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(position) = rest.find(part) else {
            return false;
        };
        rest = &rest[position + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        #[track_caller]
        fn check(pattern: &str, name: &str, expected: bool) {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
        check("libcuda.so.1", "libcuda.so.1", true);
        check("libcuda.so.1", "libcuda.so.10", false);
        check("lib*.so.550.1", "libcuda.so.550.1", true);
        check("lib*.so.550.1", "libcuda.so.550.10", false);
        check("*.so.550.1", "nvidia.so.550.1", true);
        check("libcuda.so.*.*", "libcuda.so.550.163.01", true);
        check("libcuda.so.*.*", "libcuda.so.1", false);
        check("libcuda.so.*.*", "libcuda.so..", true);
        check("a*a", "a", false);
        check("*", "", true);
        check("gsp*.bin", "gsp_ga10x.bin", true);
        check("gsp*.bin", "gsp_ga10x.bin.xz", false);
    }
}
