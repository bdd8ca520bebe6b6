//! The binary: see the library of the same name.
#![forbid(unsafe_code)]

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: freshet_allocator::Counting = freshet_allocator::Counting;

fn main() -> ExitCode {
    freshet_allocator::set_up();
    freshet::main()
}
