//! What is needed of ELF files.
//!
//! Everything is read through the program headers, as the loader does, so that a library without section headers is fine.
//! Of a file no more than [`MOST_BYTES`] are read: its tables say themselves how long they are.

use std::{cell::Cell, ops::Range};

use object::{
    FileKind, ReadRef,
    elf::{DT_NULL, DT_SONAME, DT_STRTAB, DynamicTag, FileHeader32, FileHeader64, PT_LOAD},
    endian::Endianness,
    read::elf::{Dyn as _, FileHeader, ProgramHeader as _},
};

/// Most bytes that are read of one file; headers, tables and names of the driver's largest libraries have some 100 KiB.
const MOST_BYTES: u64 = 4 << 20;

/// A file of which so many bytes may still be read.
struct Limited<R> {
    data: R,
    left: Cell<u64>,
}

impl<R> Limited<R> {
    fn new(data: R) -> Self {
        Self {
            data,
            left: Cell::new(MOST_BYTES),
        }
    }

    fn take(&self, size: u64) -> Result<(), ()> {
        self.left.set(self.left.get().checked_sub(size).ok_or(())?);
        Ok(())
    }
}

impl<'data, R: ReadRef<'data>> ReadRef<'data> for &Limited<R> {
    fn len(self) -> Result<u64, ()> {
        self.data.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'data [u8], ()> {
        self.take(size)?;
        self.data.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'data [u8], ()> {
        let end = range.end.min(range.start.saturating_add(self.left.get()));
        let bytes = self.data.read_bytes_at_until(range.start..end, delimiter)?;
        self.take(bytes.len() as u64)?;
        Ok(bytes)
    }
}

/// The SONAME of a shared library; `None` if it has none.
///
/// `data` may be a cache over a file: only what is needed is read.
pub(crate) fn soname<'data>(data: impl ReadRef<'data>) -> Result<Option<String>, String> {
    let data = &Limited::new(data);
    match FileKind::parse(data) {
        Ok(FileKind::Elf64) => soname_of::<FileHeader64<Endianness>, _>(data),
        Ok(FileKind::Elf32) => soname_of::<FileHeader32<Endianness>, _>(data),
        _ => Err("not an ELF file".to_owned()),
    }
}

/// Whether it is a file for 32-bit programs.
pub(crate) fn is_32_bit<'data>(data: impl ReadRef<'data>) -> bool {
    FileKind::parse(&Limited::new(data)) == Ok(FileKind::Elf32)
}

fn soname_of<'data, Elf, R>(data: R) -> Result<Option<String>, String>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = Elf::parse(data).map_err(text)?;
    let endian = header.endian().map_err(text)?;
    let segments = header.program_headers(endian, data).map_err(text)?;
    let mut dynamic: Option<&[Elf::Dyn]> = None;
    for segment in segments {
        if let Some(entries) = segment.dynamic(endian, data).map_err(text)? {
            dynamic = Some(entries);
        }
    }
    let dynamic = dynamic.ok_or("an ELF file without a dynamic section")?;
    let values = |tag: DynamicTag| {
        let entries = dynamic.iter().take_while(|entry| entry.tag(endian) != DT_NULL);
        entries
            .filter(move |entry| entry.tag(endian) == tag)
            .map(|entry| entry.val(endian))
    };

    let mut sonames = values(DT_SONAME);
    let Some(offset) = sonames.next() else {
        return Ok(None);
    };
    if sonames.next().is_some() {
        return Err("an ELF file with more than one SONAME".to_owned());
    }
    let strings = values(DT_STRTAB)
        .next()
        .ok_or("an ELF file with a SONAME and no strings")?;
    let address = strings
        .checked_add(offset)
        .ok_or("an ELF file whose SONAME is out of range")?;
    let name = segments
        .iter()
        .filter(|segment| segment.p_type(endian) == PT_LOAD)
        .find_map(|segment| {
            let (file_offset, size) = segment.file_range(endian);
            let within = address
                .checked_sub(segment.p_vaddr(endian).into())
                .filter(|within| *within < size)?;
            let end = file_offset.checked_add(size)?;
            data.read_bytes_at_until(file_offset.checked_add(within)?..end, 0).ok()
        })
        .ok_or("an ELF file whose SONAME is out of range")?;
    match std::str::from_utf8(name) {
        Ok(name) if !name.is_empty() && !name.contains('/') => Ok(Some(name.to_owned())),
        _ => Err("an ELF file whose SONAME is not a file name".to_owned()),
    }
}

fn text(error: object::read::Error) -> String {
    error.to_string()
}

/// Whether an executable is started through a program of its own choosing, the loader: whether it is not static.
#[cfg(feature = "hook")]
pub(crate) fn has_interpreter<'data>(data: impl ReadRef<'data>) -> Result<bool, String> {
    let data = &Limited::new(data);
    match FileKind::parse(data) {
        Ok(FileKind::Elf64) => has_interpreter_in::<FileHeader64<Endianness>, _>(data),
        Ok(FileKind::Elf32) => has_interpreter_in::<FileHeader32<Endianness>, _>(data),
        _ => Err("not an ELF file".to_owned()),
    }
}

#[cfg(feature = "hook")]
fn has_interpreter_in<'data, Elf, R>(data: R) -> Result<bool, String>
where
    Elf: FileHeader<Endian = Endianness>,
    R: ReadRef<'data>,
{
    let header = Elf::parse(data).map_err(text)?;
    let endian = header.endian().map_err(text)?;
    let segments = header.program_headers(endian, data).map_err(text)?;
    Ok(segments
        .iter()
        .any(|segment| segment.p_type(endian) == object::elf::PT_INTERP))
}

/// The text of the note in a section, written by `owner`; `None` if the 64-bit library has no such section.
///
/// At most `limit` bytes of a note are read.
#[cfg(feature = "hook")]
pub(crate) fn note<'data>(
    data: impl ReadRef<'data>,
    section: &str,
    owner: &str,
    limit: u64,
) -> Result<Option<&'data [u8]>, String> {
    use object::read::elf::SectionHeader as _;

    let data = &Limited::new(data);
    let header = FileHeader64::<Endianness>::parse(data).map_err(text)?;
    let endian = header.endian().map_err(text)?;
    let sections = header.sections(endian, data).map_err(text)?;
    let Some((_, section)) = sections.section_by_name(endian, section.as_bytes()) else {
        return Ok(None);
    };
    if section.sh_size(endian) > limit {
        return Err(format!("a note of more than {limit} bytes"));
    }
    let Some(mut notes) = section.notes(endian, data).map_err(text)? else {
        return Ok(None);
    };
    match notes.next().map_err(text)? {
        Some(note) if note.name() == owner.as_bytes() => Ok(Some(note.desc())),
        _ => Ok(None),
    }
}

#[cfg(all(test, feature = "hook"))]
mod tests {
    use std::fs::File;

    use object::read::{ReadCache, ReadCacheOps};

    use super::*;

    /// A file that is zero behind its start, and what was read of it.
    struct Sparse {
        start: Vec<u8>,
        size: u64,
        at: u64,
        read: u64,
    }

    impl ReadCacheOps for &mut Sparse {
        fn len(&mut self) -> Result<u64, ()> {
            Ok(self.size)
        }

        fn seek(&mut self, at: u64) -> Result<u64, ()> {
            self.at = at;
            Ok(at)
        }

        fn read(&mut self, buffer: &mut [u8]) -> Result<usize, ()> {
            for byte in &mut *buffer {
                let at = usize::try_from(self.at).map_err(|_| ())?;
                *byte = self.start.get(at).copied().unwrap_or(0);
                self.at += 1;
            }
            self.read += buffer.len() as u64;
            Ok(buffer.len())
        }

        fn read_exact(&mut self, buffer: &mut [u8]) -> Result<(), ()> {
            self.read(buffer).map(|_| ())
        }
    }

    /// The header of a file of `size` bytes with so many program headers and sections at its end.
    fn sparse(size: u64, segments: u64, sections: u64) -> Sparse {
        const HEADER: u64 = 64;
        let mut start = b"\x7fELF\x02\x01\x01".to_vec();
        start.resize(16, 0);
        start.extend(3u16.to_le_bytes());
        start.extend(62u16.to_le_bytes());
        start.extend(1u32.to_le_bytes());
        for value in [0, HEADER, HEADER] {
            start.extend(u64::to_le_bytes(value));
        }
        start.extend(0u32.to_le_bytes());
        // Sizes of the header, of a program header and their number; the number 0 of sections: see the first of them.
        for value in [HEADER, 56, segments, 64, 0, 1] {
            start.extend(&value.to_le_bytes()[..2]);
        }
        let mut first = vec![0; 64];
        first[32..40].copy_from_slice(&sections.to_le_bytes());
        start.extend(first);
        Sparse {
            start,
            size,
            at: 0,
            read: 0,
        }
    }

    #[test]
    fn tables_as_large_as_a_file_are_not_read() {
        #[track_caller]
        fn check(mut file: Sparse, read: impl Fn(&ReadCache<&mut Sparse>) -> bool) {
            assert!(read(&ReadCache::new(&mut file)), "it was accepted");
            assert!(file.read <= MOST_BYTES, "{} bytes were read", file.read);
        }
        let sections = (1 << 30) / 64 - 2;
        check(sparse(1 << 30, 0, sections), |data| {
            note(data, ".note", "owner", 100).is_err()
        });
        check(sparse(1 << 30, 0xfffe, 0), |data| soname(data).is_err());
        check(sparse(1 << 30, 0xfffe, 0), |data| has_interpreter(data) == Ok(false));
    }

    #[test]
    fn this_program_is_read_within_the_limit() {
        let file = File::open("/proc/self/exe").unwrap();
        assert_eq!(note(&ReadCache::new(file), ".none", "owner", 100), Ok(None));
    }
}
