//! The kernel's table of mounts, in which users choose names: each mount is found, whatever the names of others.

use std::path::Path;
use vellum_cli::mounted;

/// As the kernel writes a name: what would end a field is in octal.
fn escaped(name: &[u8]) -> Vec<u8> {
    let escape = |byte: &u8| match byte {
        b' ' | b'\t' | b'\n' | b'\\' => format!("\\{byte:03o}").into_bytes(),
        _ => vec![*byte],
    };
    name.iter().flat_map(escape).collect()
}

/// Takes the bytes as a table, and as the names of mounts in one.
pub fn table(bytes: &[u8]) {
    let _ = mounted(bytes);
    // No name in the kernel has a zero, and none is empty.
    let names = bytes.split(|byte| *byte == 0);
    let names: Vec<&[u8]> = names.filter(|name| !name.is_empty()).collect();
    let mut table = Vec::new();
    for name in &names {
        let name = escaped(name);
        table.extend(b"36 35 0:9 / /");
        table.extend(&name);
        table.extend(b" rw,nosuid shared:1 - fuse.x ");
        table.extend(&name);
        table.extend(b" rw\n");
    }
    let found = mounted(&table);
    assert_eq!(found.len(), names.len());
    for ((target, source), name) in found.iter().zip(names) {
        let name = String::from_utf8_lossy(name);
        assert_eq!(target, Path::new(&format!("/{name}")));
        assert_eq!(source, Path::new(&*name));
    }
}
