/// A call makes about a hundred small allocations. Many of them are freed by another thread than
/// the allocating one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    switchboard::main()
}
