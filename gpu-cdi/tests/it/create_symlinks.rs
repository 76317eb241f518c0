//! The hook that makes links, in containers that are folders, some with traps for it.

use std::{fs, os::unix::fs::PermissionsExt as _};

use crate::bundle::{Bundle, entries};

#[test]
fn links_are_made_with_the_folders_above_them() {
    let bundle = Bundle::new();
    bundle.file("usr/lib/libb.so", "an older file");
    bundle.link("usr/lib/libc.so", "other");
    bundle.link("lib64", "/usr/lib");
    let links = [
        "liba.so.1::/opt/driver/lib/liba.so",
        "libb.so.1::/usr/lib/libb.so",
        "libc.so.1::/usr/lib/libc.so",
        "libd.so.1::lib64/libd.so",
    ];
    let mut args = vec!["create-symlinks"];
    args.extend(links.iter().chain(&links[..1]).flat_map(|link| ["--link", link]));
    bundle.succeeds(&args);
    bundle.succeeds(&args);
    assert_eq!(bundle.target("opt/driver/lib/liba.so").as_deref(), Some("liba.so.1"));
    assert_eq!(bundle.target("usr/lib/libb.so").as_deref(), Some("libb.so.1"));
    assert_eq!(bundle.target("usr/lib/libc.so").as_deref(), Some("libc.so.1"));
    assert_eq!(bundle.target("usr/lib/libd.so").as_deref(), Some("libd.so.1"));
    assert_eq!(entries(&bundle.path("usr/lib")), ["libb.so", "libc.so", "libd.so"]);
    assert_eq!(
        fs::metadata(bundle.path("opt/driver")).unwrap().permissions().mode() & 0o777,
        0o755
    );
}

#[test]
fn cve_2024_0134_a_link_in_the_image_leads_no_new_link_out_of_it() {
    let bundle = Bundle::new();
    let host = bundle.host();
    bundle.link("absolute", &host);
    bundle.link("relative", "../../host");
    bundle.link("many", "../../../../../../../../../../../../../../../../../../../../");
    for dir in ["absolute", "relative"] {
        for path in ["sub/a", "file"] {
            bundle.fails(
                &["create-symlinks", "--link", &format!("a::/{dir}/{path}")],
                1,
                "cannot make the link",
            );
            bundle.host_is_untouched();
        }
    }
    bundle.succeeds(&["create-symlinks", "--link", "a::/many/etc/a"]);
    assert_eq!(bundle.target("etc/a").as_deref(), Some("a"));
    bundle.fails(
        &["create-symlinks", "--link", "a::/../../host/a"],
        1,
        "`..` in the path",
    );
    bundle.fails(
        &["create-symlinks", "--link", "a::/x/../../../host/a"],
        1,
        "`..` in the path",
    );
    bundle.host_is_untouched();
}

#[test]
fn a_link_that_is_none_is_bad_usage() {
    let bundle = Bundle::new();
    for link in ["a", "a::", "::b", "a::b::c"] {
        bundle.fails(&["create-symlinks", "--link", link], 2, "expected `TARGET::LINK`");
    }
    fs::create_dir(bundle.path("dir")).unwrap();
    bundle.fails(
        &["create-symlinks", "--link", "a::/dir"],
        1,
        "cannot make the link `/dir` to `a` in the container",
    );
    assert_eq!(entries(&bundle.path("")), ["dir"]);
}
