//! A program of the owner's, told on its standard input. It runs outside the corridor, as the owner
//! configured it: with a plain environment, in a group of its own, and not for long.

use std::io::{ErrorKind, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::settings::Hook;

/// How often it is looked whether it ended.
const OFTEN: Duration = Duration::from_millis(20);

/// Runs it to its end, or to the end of its time.
pub(super) fn run(hook: &Hook, notice: &[u8]) -> Result<(), String> {
    let (program, arguments) = hook.argv.split_first().ok_or("it names no program")?;
    #[expect(
        clippy::disallowed_methods,
        reason = "the owner's own program, which the configuration names: no tool and no call"
    )]
    let mut command = Command::new(program);
    command
        .args(arguments)
        // Nothing of the daemon's environment: it may hold credentials.
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    for name in [
        "HOME",
        "LANG",
        "DISPLAY",
        "WAYLAND_DISPLAY",
        "XDG_RUNTIME_DIR",
    ] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    let mut child = command
        .spawn()
        .map_err(|error| format!("it does not start: {error}"))?;
    let told = tell(&mut child, notice);
    let ended = ended(&mut child, hook.timeout.0);
    if !matches!(ended, Ok(Some(_))) {
        end(&mut child);
    }
    match ended {
        Ok(Some(status)) if status.success() => told,
        Ok(Some(status)) => Err(format!("it ended with {status}")),
        Ok(None) => Err(format!(
            "it ran longer than {:?} and was ended",
            hook.timeout.0
        )),
        Err(error) => Err(error.to_string()),
    }
}

/// A notice is far smaller than a pipe, so nobody waits here for a program that does not read.
fn tell(child: &mut Child, notice: &[u8]) -> Result<(), String> {
    let Some(mut input) = child.stdin.take() else {
        return Ok(());
    };
    match input.write_all(notice) {
        // It may not care for details.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => done.map_err(|error| error.to_string()),
    }
}

fn ended(child: &mut Child, within: Duration) -> std::io::Result<Option<std::process::ExitStatus>> {
    let deadline = Instant::now() + within;
    loop {
        let status = child.try_wait()?;
        if status.is_some() || Instant::now() >= deadline {
            return Ok(status);
        }
        std::thread::sleep(OFTEN);
    }
}

/// With everything it started in its group.
fn end(child: &mut Child) {
    let pid = i32::try_from(child.id()).ok();
    if let Some(group) = pid.and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}
