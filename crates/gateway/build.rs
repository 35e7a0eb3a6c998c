//! Rebuilds the crate after the console was rebuilt.
//!
//! The console's files have hashes in their names, so each build adds and removes files. The macro
//! that embeds them cannot report that to cargo.

fn main() {
    let console = std::path::Path::new("../../console");
    let built = console.join("dist");
    // A path that does not exist would count as changed in every build.
    let watched = if built.exists() { built } else { console.to_path_buf() };
    println!("cargo::rerun-if-changed={}", watched.display());
    println!("cargo::rerun-if-changed=build.rs");
}
