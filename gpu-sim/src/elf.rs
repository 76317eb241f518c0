//! The smallest shared object that the dynamic loader, `ldconfig` and ELF readers accept: it has a SONAME and no code.

mod hide;

pub(crate) use self::hide::hide_symbols;

const EHDR: u64 = 64;
const PHDR: u64 = 56;
const SHDR: u64 = 64;
const SYM: u64 = 24;

/// A 64-bit little-endian shared object for the machine this program was compiled for.
pub(crate) fn shared_object(soname: &str) -> Vec<u8> {
    // Everything the loader reads lies in one writable segment that starts at offset 0, so offsets are addresses too.
    // Writable, because older loaders relocate the dynamic section in place.
    let mut dynstr = vec![0];
    dynstr.extend_from_slice(soname.as_bytes());
    dynstr.push(0);
    let shstrtab = b"\0.hash\0.dynsym\0.dynstr\0.dynamic\0.shstrtab\0";

    let hash_at = EHDR + 3 * PHDR;
    let dynsym_at = hash_at + 16;
    let dynstr_at = dynsym_at + SYM;
    let dynamic_at = (dynstr_at + dynstr.len() as u64).next_multiple_of(8);
    let dynamic = [
        (14, 1), // DT_SONAME, at 1 in .dynstr
        (4, hash_at),
        (5, dynstr_at),
        (6, dynsym_at),
        (10, dynstr.len() as u64), // DT_STRSZ
        (11, SYM),                 // DT_SYMENT
        (0, 0),
    ];
    let loaded = dynamic_at + dynamic.len() as u64 * 16;
    let shstrtab_at = loaded;
    let sections_at = (shstrtab_at + shstrtab.len() as u64).next_multiple_of(8);

    let mut file = Writer(Vec::new());
    // ELF header: 64 bit, little endian, version 1, System V; ET_DYN.
    file.bytes(b"\x7fELF\x02\x01\x01")
        .zeros(9)
        .half(3)
        .half(machine())
        .word(1);
    file.long(0)
        .long(EHDR)
        .long(sections_at)
        .word(0)
        .half(64)
        .half(56)
        .half(3)
        .half(64)
        .half(6)
        .half(5);
    // Program headers: type, flags, offset, virtual and physical address, size in the file and in memory, alignment.
    file.word(1)
        .word(6)
        .long(0)
        .long(0)
        .long(0)
        .long(loaded)
        .long(loaded)
        .long(0x10000); // PT_LOAD
    let size = loaded - dynamic_at;
    file.word(2)
        .word(6)
        .long(dynamic_at)
        .long(dynamic_at)
        .long(dynamic_at)
        .long(size)
        .long(size)
        .long(8); // PT_DYNAMIC
    file.word(0x6474_e551)
        .word(6)
        .long(0)
        .long(0)
        .long(0)
        .long(0)
        .long(0)
        .long(16); // PT_GNU_STACK
    file.word(1).word(1).word(0).word(0); // one bucket, one chain, both empty
    file.zeros(SYM);
    file.bytes(&dynstr).pad_to(dynamic_at);
    for (tag, value) in dynamic {
        file.long(tag).long(value);
    }
    file.bytes(shstrtab).pad_to(sections_at);
    // Section headers: name, type, flags, address, offset, size, link, info, alignment, entry size.
    file.zeros(SHDR);
    let mut section = |name, kind, flags, at: u64, size, link, info, alignment, entry| {
        let address = if flags == 0 { 0 } else { at };
        file.word(name).word(kind).long(flags).long(address).long(at).long(size);
        file.word(link).word(info).long(alignment).long(entry);
    };
    section(1, 5, 2, hash_at, 16, 2, 0, 8, 4);
    section(7, 11, 2, dynsym_at, SYM, 3, 1, 8, SYM);
    section(15, 3, 2, dynstr_at, dynstr.len() as u64, 0, 0, 1, 0);
    section(23, 6, 3, dynamic_at, size, 3, 0, 8, 16);
    section(32, 3, 0, shstrtab_at, shstrtab.len() as u64, 0, 0, 1, 0);
    file.0
}

/// `e_machine` of this program.
fn machine() -> u16 {
    if cfg!(target_arch = "aarch64") { 183 } else { 62 }
}

struct Writer(Vec<u8>);

impl Writer {
    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    fn half(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn word(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn long(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn zeros(&mut self, count: u64) -> &mut Self {
        self.pad_to(self.0.len() as u64 + count)
    }

    fn pad_to(&mut self, offset: u64) -> &mut Self {
        while (self.0.len() as u64) < offset {
            self.0.push(0);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use object::{
        elf,
        read::elf::{Dyn as _, ElfFile64, FileHeader as _},
    };

    use super::*;

    #[test]
    fn readers_find_the_soname() {
        let bytes = shared_object("libcuda.so.1");
        let file = ElfFile64::<object::LittleEndian>::parse(&*bytes).unwrap();
        let endian = file.endian();
        let sections = file.elf_header().sections(endian, &*bytes).unwrap();
        let (entries, link) = sections.dynamic(endian, &*bytes).unwrap().unwrap();
        let strings = sections.strings(endian, &*bytes, link).unwrap();
        let entry = entries
            .iter()
            .find(|entry| entry.tag(endian) == elf::DT_SONAME)
            .unwrap();
        assert_eq!(entry.string(endian, strings).unwrap(), b"libcuda.so.1");
    }
}
