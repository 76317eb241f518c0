//! What is needed of ELF files.
//!
//! Everything is read through the program headers, as the loader does, so that a library without section headers is fine.

use object::{
    FileKind, ReadRef,
    elf::{DT_NULL, DT_SONAME, DT_STRTAB, DynamicTag, FileHeader32, FileHeader64, PT_LOAD},
    endian::Endianness,
    read::elf::{Dyn as _, FileHeader, ProgramHeader as _},
};

/// The SONAME of a shared library; `None` if it has none.
///
/// `data` may be a cache over a file: only what is needed is read.
pub(crate) fn soname<'data>(data: impl ReadRef<'data>) -> Result<Option<String>, String> {
    match FileKind::parse(data) {
        Ok(FileKind::Elf64) => soname_of::<FileHeader64<Endianness>, _>(data),
        Ok(FileKind::Elf32) => soname_of::<FileHeader32<Endianness>, _>(data),
        _ => Err("not an ELF file".to_owned()),
    }
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
