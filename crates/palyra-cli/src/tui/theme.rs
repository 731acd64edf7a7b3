//! Colours by meaning. They are the terminal's own sixteen, so its theme decides how they look; with
//! `NO_COLOR` only weight is left.

use ratatui::style::{Color, Modifier, Style};

/// What a text means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    /// Nothing special.
    #[default]
    Plain,
    /// It matters.
    Strong,
    /// It matters less.
    Dim,
    /// It went well.
    Good,
    /// It waits, or needs care.
    Care,
    /// It went wrong, or can.
    Bad,
    /// The worst.
    Worst,
    /// A key, or something to type.
    Key,
    /// The cursor is on it.
    Cursor,
}

/// How tones look here.
#[derive(Debug, Clone, Copy)]
pub struct Theme {
    coloured: bool,
}

impl Theme {
    /// With colours or without.
    #[must_use]
    pub const fn new(coloured: bool) -> Self {
        Self { coloured }
    }

    /// As `NO_COLOR` wants it: any value but the empty one means none.
    #[must_use]
    pub fn from_env() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self::new(!unwanted)
    }

    /// The style of a tone.
    #[must_use]
    pub fn of(self, tone: Tone) -> Style {
        let plain = Style::new();
        let (style, colour) = match tone {
            Tone::Plain => (plain, None),
            Tone::Strong => (plain.add_modifier(Modifier::BOLD), None),
            Tone::Dim => (plain.add_modifier(Modifier::DIM), None),
            Tone::Good => (plain, Some(Color::Green)),
            Tone::Care => (plain, Some(Color::Yellow)),
            Tone::Bad => (plain, Some(Color::Red)),
            Tone::Worst => (plain.add_modifier(Modifier::BOLD), Some(Color::Red)),
            Tone::Key => (plain.add_modifier(Modifier::BOLD), Some(Color::Cyan)),
            Tone::Cursor => (plain.add_modifier(Modifier::REVERSED), None),
        };
        match colour.filter(|_| self.coloured) {
            Some(colour) => style.fg(colour),
            None => style,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Tone; 9] = [
        Tone::Plain,
        Tone::Strong,
        Tone::Dim,
        Tone::Good,
        Tone::Care,
        Tone::Bad,
        Tone::Worst,
        Tone::Key,
        Tone::Cursor,
    ];

    #[test]
    fn colours_are_the_terminals_own() {
        for tone in ALL {
            let style = Theme::new(true).of(tone);
            assert!(style.bg.is_none(), "{tone:?} has a ground of its own");
            let named = [
                None,
                Some(Color::Green),
                Some(Color::Yellow),
                Some(Color::Red),
                Some(Color::Cyan),
            ];
            assert!(named.contains(&style.fg), "{tone:?} has {:?}", style.fg);
        }
    }

    #[test]
    fn without_colour_there_is_none() {
        for tone in ALL {
            let style = Theme::new(false).of(tone);
            assert_eq!((style.fg, style.bg), (None, None), "{tone:?}");
        }
    }
}
