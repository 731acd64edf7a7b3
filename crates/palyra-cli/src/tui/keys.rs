//! The keys that mean something here. What else a keyboard has is left out at this door.

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// A key that was pressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A letter, a digit, a sign or a space.
    Letter(char),
    /// The same, with Ctrl.
    Control(char),
    /// It never decides.
    Enter,
    /// Back.
    Escape,
    /// To the left of the line.
    Backspace,
    /// One up.
    Up,
    /// One down.
    Down,
    /// A page back.
    PageUp,
    /// A page on.
    PageDown,
    /// To the beginning.
    Home,
    /// To the end.
    End,
    /// The next one.
    Tab,
    /// The one before.
    BackTab,
}

impl Key {
    /// The key of an event, when it is one of these being pressed.
    #[must_use]
    pub fn of(event: &Event) -> Option<Self> {
        match event {
            Event::Key(key) if key.kind != KeyEventKind::Release => Self::pressed(*key),
            Event::Key(_)
            | Event::Paste(_)
            | Event::Resize(..)
            | Event::Mouse(_)
            | Event::FocusGained
            | Event::FocusLost => None,
        }
    }

    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "keyboards have more keys than this screen"
    )]
    fn pressed(key: KeyEvent) -> Option<Self> {
        let with = |modifier| key.modifiers.contains(modifier);
        Some(match key.code {
            // Alt and a letter is something else than that letter.
            _ if with(KeyModifiers::ALT) => return None,
            KeyCode::Char(letter) if with(KeyModifiers::CONTROL) => Self::Control(letter),
            KeyCode::Char(letter) => Self::Letter(letter),
            KeyCode::Enter => Self::Enter,
            KeyCode::Esc => Self::Escape,
            KeyCode::Backspace => Self::Backspace,
            KeyCode::Up => Self::Up,
            KeyCode::Down => Self::Down,
            KeyCode::PageUp => Self::PageUp,
            KeyCode::PageDown => Self::PageDown,
            KeyCode::Home => Self::Home,
            KeyCode::End => Self::End,
            KeyCode::Tab => Self::Tab,
            KeyCode::BackTab => Self::BackTab,
            _ => return None,
        })
    }

    /// Whether it leaves the screen wherever one is, or only where nothing is typed.
    #[must_use]
    pub const fn leaves(self, typing: bool) -> bool {
        matches!(self, Self::Control('c')) || !typing && matches!(self, Self::Letter('q'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
        Key::of(&Event::Key(KeyEvent::new(code, modifiers)))
    }

    #[test]
    fn only_a_plain_letter_is_that_letter() {
        let letter = KeyCode::Char('a');
        assert_eq!(key(letter, KeyModifiers::NONE), Some(Key::Letter('a')));
        assert_eq!(key(letter, KeyModifiers::CONTROL), Some(Key::Control('a')));
        assert_eq!(key(letter, KeyModifiers::ALT), None);
        assert_eq!(key(KeyCode::F(1), KeyModifiers::NONE), None);
        let mut released = KeyEvent::new(letter, KeyModifiers::NONE);
        released.kind = KeyEventKind::Release;
        assert_eq!(Key::of(&Event::Key(released)), None);
    }
}
