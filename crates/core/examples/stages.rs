//! Prints the stages of a call as a Markdown table, for `cargo xtask docs`.

fn main() {
    println!("| stage | what happens |\n|---|---|");
    for stage in sa_core::router::STAGES {
        println!("| {} | {} |", stage.name(), stage.about());
    }
}
