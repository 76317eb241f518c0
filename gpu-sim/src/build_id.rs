//! Tells a library of this build from one of another, without loading it.

/// Changes whenever this crate's sources or data change. The library carries the same.
pub const BUILD_ID: &str = env!("GPU_SIM_BUILD_ID");

const PREFIX: &[u8] = b"gpu-sim-build-id:";

/// What the library carries so that [`find`] sees it: the prefix, the id, a semicolon.
pub(crate) const MARKER: &str = concat!("gpu-sim-build-id:", env!("GPU_SIM_BUILD_ID"), ";");

/// The build id within a library's bytes.
pub(crate) fn find(library: &[u8]) -> Option<String> {
    let mut from = 0;
    while let Some(at) = library.get(from..).and_then(|rest| position(rest, PREFIX)) {
        from += at + PREFIX.len();
        // The prefix alone also stands in this very code.
        let id = library
            .get(from..from + BUILD_ID.len())
            .and_then(|id| std::str::from_utf8(id).ok());
        let ended = library.get(from + BUILD_ID.len()) == Some(&b';');
        if let Some(id) = id.filter(|id| ended && id.bytes().all(|byte| byte.is_ascii_hexdigit())) {
            return Some(id.to_owned());
        }
    }
    None
}

/// Where `needle` first stands in `text` (Horspool: a debug build must search some 20 MB without delay).
fn position(text: &[u8], needle: &[u8]) -> Option<usize> {
    let last = needle.len().checked_sub(1)?;
    let mut at = 0;
    loop {
        let window = text.get(at..=at + last)?;
        if window == needle {
            return Some(at);
        }
        let end = *window.last()?;
        at += needle
            .iter()
            .rev()
            .skip(1)
            .position(|&byte| byte == end)
            .map_or(needle.len(), |back| back + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_found_behind_a_prefix_without_one() {
        let text = format!("xx gpu-sim-build-id:gpu-sim-build-id: yy gpu-sim-gpu-sim-{MARKER} zz");
        assert_eq!(find(text.as_bytes()).as_deref(), Some(BUILD_ID));
    }

    #[test]
    fn no_id_is_found_where_there_is_none() {
        for text in [
            "",
            "gpu-sim-build-id:",
            "gpu-sim-build-id:0123;",
            &MARKER.replace(';', ""),
        ] {
            assert_eq!(find(text.as_bytes()), None, "{text}");
        }
    }
}
