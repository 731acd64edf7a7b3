//! The caller's own terminal while `exec -t` runs something: handed through key by key, and put
//! back as it was however that ends.
//!
//! The program never sees this terminal. It has one of its own inside its sandbox; what is typed
//! here is sent there, and what it writes there is shown here.

use std::io::IsTerminal;
use std::sync::{Mutex, Once, PoisonError};

use palyra_api::wire::Window;
use rustix::termios::{OptionalActions, Termios};

use crate::failure::Failure;

/// How the terminal was, while it is otherwise.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Refuses to go on where there is no terminal to hand through.
///
/// # Errors
/// Standard input is none.
pub fn demand() -> Result<(), Failure> {
    if std::io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::usage(
        "standard input is not a terminal",
        "leave out -t; `-i` alone passes standard input on",
    ))
}

/// How large it is, as far as it says.
#[must_use]
pub fn window() -> Option<Window> {
    let size = rustix::termios::tcgetwinsize(std::io::stdin()).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some(Window {
        rows: size.ws_row,
        columns: size.ws_col,
    })
}

/// Every key counts, Ctrl-C too, until this is dropped.
#[derive(Debug)]
pub struct HandedThrough(());

impl HandedThrough {
    /// From now on.
    ///
    /// # Errors
    /// The terminal does not take it.
    pub fn begin() -> Result<Self, Failure> {
        let unusable = |error: rustix::io::Errno| {
            let next_step = "leave out -t; `-i` alone passes standard input on";
            Failure::usage(format!("the terminal cannot be used: {error}"), next_step)
        };
        let before = rustix::termios::tcgetattr(std::io::stdin()).map_err(unusable)?;
        let mut raw = before.clone();
        raw.make_raw();
        restore_on_panic();
        // Noted first: whatever comes in between puts it back.
        *lock() = Some(before);
        let guard = Self(());
        rustix::termios::tcsetattr(std::io::stdin(), OptionalActions::Drain, &raw)
            .map_err(unusable)?;
        Ok(guard)
    }
}

impl Drop for HandedThrough {
    fn drop(&mut self) {
        restore();
    }
}

/// Puts the terminal back as it was, if it is otherwise.
pub fn restore() {
    if let Some(before) = lock().take() {
        // Nobody is left to tell when the terminal is gone.
        let _ = rustix::termios::tcsetattr(std::io::stdin(), OptionalActions::Now, &before);
    }
}

fn lock() -> std::sync::MutexGuard<'static, Option<Termios>> {
    BEFORE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Before what a panic says is printed, so that it can be read.
fn restore_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            usual(panic);
        }));
    });
}
