//! The terminal while the screen is on it, and how it is put back: at the end, after a panic, and
//! when the program is told to end.

use std::io::{IsTerminal, Write};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};

use crate::exit::Meaning;
use crate::failure::Failure;

/// Whether the terminal is ours now.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// A terminal to draw on; it is put back when this is dropped.
pub struct Screen {
    /// What draws.
    pub terminal: Terminal<CrosstermBackend<std::io::Stdout>>,
}

/// Refuses to go on where there is nothing to draw on.
///
/// # Errors
/// Standard input or output is no terminal, or one that cannot be drawn on.
pub fn demand() -> Result<(), Failure> {
    let hint = "run it in a terminal; for scripts there is `palyra approvals list --json`";
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Failure::usage(
            "`palyra tui` needs a terminal, and this is none",
            hint,
        ));
    }
    if std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
        return Err(Failure::usage(
            "`palyra tui` cannot draw on a terminal of the kind `dumb`",
            hint,
        ));
    }
    Ok(())
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// It does not let itself be taken.
    pub fn enter() -> std::io::Result<Self> {
        restore_on_panic();
        // Noted first: whatever comes in between puts it back.
        TAKEN.store(true, Ordering::SeqCst);
        let guard = Guard;
        enable_raw_mode()?;
        execute!(
            std::io::stdout(),
            EnterAlternateScreen,
            EnableBracketedPaste,
            Hide
        )?;
        let mut terminal = Terminal::new(CrosstermBackend::new(std::io::stdout()))?;
        terminal.clear()?;
        std::mem::forget(guard);
        Ok(Self { terminal })
    }
}

/// Puts the terminal back when taking it fails half-way.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        restore();
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Puts the terminal back as it was, if it is ours.
pub fn restore() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let mut to = std::io::stdout();
        // Nobody is left to tell when the terminal is gone.
        let _ = execute!(to, DisableBracketedPaste, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
        let _ = to.flush();
    }
}

/// The terminal broke while it was ours.
pub(super) fn unusable(error: &std::io::Error) -> Failure {
    Failure::new(
        Meaning::Error,
        "terminal_unusable",
        format!("the terminal cannot be used: {error}"),
        "try another terminal; `palyra approvals list` needs none",
    )
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
