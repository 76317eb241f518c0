/// The smallest 64-bit shared library that has a SONAME: a header, two segments, a dynamic section and its strings.
pub(crate) fn library(soname: Option<&str>) -> Vec<u8> {
    const HEADER: u64 = 64;
    const SEGMENT: u64 = 56;
    let dynamic_at = HEADER + 2 * SEGMENT;
    let mut strings = vec![0];
    let mut dynamic: Vec<[u64; 2]> = Vec::new();
    if let Some(soname) = soname {
        dynamic.push([14, strings.len() as u64]); // DT_SONAME
        strings.extend(soname.as_bytes());
        strings.push(0);
    }
    let strings_at = dynamic_at + (dynamic.len() as u64 + 3) * 16;
    let size = strings_at + strings.len() as u64;
    dynamic.push([5, strings_at]); // DT_STRTAB
    dynamic.push([10, strings.len() as u64]); // DT_STRSZ
    dynamic.push([0, 0]);

    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    file.extend(3u16.to_le_bytes()); // a shared object
    file.extend(62u16.to_le_bytes()); // for x86-64
    file.extend(1u32.to_le_bytes());
    for value in [0, HEADER, 0] {
        file.extend(u64::to_le_bytes(value));
    }
    file.extend(0u32.to_le_bytes());
    for value in [HEADER, SEGMENT, 2, 64, 0, 0] {
        file.extend(&value.to_le_bytes()[..2]);
    }
    segment(&mut file, 1, 0, size); // PT_LOAD
    segment(&mut file, 2, dynamic_at, strings_at - dynamic_at); // PT_DYNAMIC
    for value in dynamic.into_iter().flatten() {
        file.extend(value.to_le_bytes());
    }
    file.extend(strings);
    file
}

fn segment(file: &mut Vec<u8>, kind: u32, at: u64, size: u64) {
    file.extend(kind.to_le_bytes());
    file.extend(4u32.to_le_bytes());
    for value in [at, at, at, size, size, 8] {
        file.extend(value.to_le_bytes());
    }
}
