//! Links the library as the driver's is.

mod link;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=link.rs");
    link::as_the_drivers("libcuda.so.1", "cuda-devices");
}
