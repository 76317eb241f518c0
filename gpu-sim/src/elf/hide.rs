//! Takes names out of a shared object's dynamic symbol table.

/// Lets `dlsym` find none of these names any more: their entries lose name, place and value, which is what the loaders of
/// glibc and musl pass over. What the object itself refers to by such a name would be null.
///
/// Answers how many entries were changed; none if the file is no 64-bit little-endian object with section headers.
pub(crate) fn hide_symbols(object: &mut [u8], hidden: impl Fn(&str) -> bool) -> usize {
    let Some(table) = dynamic_symbols(object) else { return 0 };
    let mut entries = Vec::new();
    for at in (table.symbols..table.symbols_end).step_by(SYMBOL) {
        let name = word(object, at).and_then(|offset| text(object, table.names, offset));
        if name.is_some_and(&hidden) {
            entries.push(at);
        }
    }
    for at in &entries {
        let Some(entry) = object.get_mut(*at..*at + SYMBOL) else {
            continue;
        };
        entry.fill(0);
        if let Some(info) = entry.get_mut(4) {
            *info = WEAK; // so that nobody insists on it
        }
    }
    entries.len()
}

/// Size of an entry: name (4), information (1), visibility (1), section (2), value (8), size (8).
const SYMBOL: usize = 24;
/// Weak binding, no type.
const WEAK: u8 = 0x20;
/// Size of a section header, and the type of the one that holds the dynamic symbols.
const SECTION: usize = 64;
const DYNSYM: u32 = 11;

struct Table {
    symbols: usize,
    symbols_end: usize,
    names: usize,
}

fn dynamic_symbols(object: &[u8]) -> Option<Table> {
    if !object.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let headers = long(object, 0x28)?;
    let count = usize::from(u16::from_le_bytes(object.get(0x3c..0x3e)?.try_into().ok()?));
    let section = |number: usize| headers.checked_add(number.checked_mul(SECTION)?);
    let found = (0..count)
        .filter_map(section)
        .find(|at| word(object, at.saturating_add(4)) == Some(DYNSYM))?;
    let symbols = long(object, found.checked_add(0x18)?)?;
    let size = long(object, found.checked_add(0x20)?)?;
    let names = section(word(object, found.checked_add(0x28)?)?.try_into().ok()?)?;
    Some(Table {
        symbols,
        symbols_end: symbols.checked_add(size)?.min(object.len()),
        names: long(object, names.checked_add(0x18)?)?,
    })
}

fn word(object: &[u8], at: usize) -> Option<u32> {
    let bytes = object.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn long(object: &[u8], at: usize) -> Option<usize> {
    let bytes = object.get(at..at.checked_add(8)?)?;
    u64::from_le_bytes(bytes.try_into().ok()?).try_into().ok()
}

fn text(object: &[u8], table: usize, offset: u32) -> Option<&str> {
    let start = table.checked_add(offset.try_into().ok()?)?;
    let rest = object.get(start..)?;
    let end = rest.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(rest.get(..end)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_object_or_a_broken_one_is_left_alone() {
        let mut object = crate::elf::shared_object("libx.so");
        let whole = object.clone();
        assert_eq!(hide_symbols(&mut object, |name| name == "absent"), 0);
        for length in 0..object.len() {
            let _ = hide_symbols(&mut object[..length], |name| name == "absent");
        }
        assert_eq!(object, whole);
        assert_eq!(hide_symbols(&mut b"#!/bin/sh".to_owned(), |_| true), 0);
    }
}
