//! Has the crate built anew when the console was.
//!
//! The files of the console carry hashes in their names, so new ones come and old ones go, which the macro that embeds
//! them cannot tell cargo about.

fn main() {
    let console = std::path::Path::new("../../console");
    let built = console.join("dist");
    // A path that does not exist would count as changed at every build.
    let watched = if built.exists() { built } else { console.to_path_buf() };
    println!("cargo::rerun-if-changed={}", watched.display());
    println!("cargo::rerun-if-changed=build.rs");
}
