//! `palyra-jail`, less one wall: the one whose name stands at the end of this program's file.
//!
//! The helper is started without an environment and from memory, so this is how a test reaches it.
//! Nothing installs it, and the helper itself has no such ear.

use std::process::ExitCode;

/// What comes before the name.
const MARK: &[u8] = b"\nleave out: ";

fn main() -> ExitCode {
    let Ok(program) = std::fs::read("/proc/self/exe") else {
        return ExitCode::from(3);
    };
    let at = program.windows(MARK.len()).rposition(|part| part == MARK);
    let name = at
        .and_then(|at| program.get(at + MARK.len()..))
        .and_then(|name| std::str::from_utf8(name).ok());
    match name {
        Some(name) => palyra_sandbox::jail::main_without(name),
        None => ExitCode::from(4),
    }
}
