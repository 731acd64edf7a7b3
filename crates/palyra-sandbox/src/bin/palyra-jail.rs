//! The helper of `palyra-sandbox`: started by the daemon, of no use by hand.

fn main() -> std::process::ExitCode {
    palyra_sandbox::jail::main()
}
