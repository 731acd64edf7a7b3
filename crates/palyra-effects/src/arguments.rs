//! Options before operands, read by a table; what is not in the table is not guessed.

use crate::words::Word;

/// The options that a program takes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Options {
    /// Letters that stand alone.
    pub(crate) plain: &'static str,
    /// Letters that take a value.
    pub(crate) valued: &'static str,
    /// Long names that stand alone.
    pub(crate) long: &'static [&'static str],
    /// Long names that take a value.
    pub(crate) long_valued: &'static [&'static str],
    /// Options may stand behind operands (curl, wget), not only before (wrappers).
    pub(crate) anywhere: bool,
}

/// Argv, taken apart.
#[derive(Debug, Default)]
pub(crate) struct Taken<'a> {
    /// Each option as it is in the table, with its value when that is known.
    pub(crate) options: Vec<(&'a str, Option<&'a str>)>,
    /// What is left.
    pub(crate) operands: Vec<&'a Word>,
}

impl<'a> Taken<'a> {
    pub(crate) fn value(&self, name: &str) -> Option<&'a str> {
        self.options.iter().find(|(option, _)| *option == name)?.1
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.options.iter().any(|(option, _)| *option == name)
    }
}

impl Options {
    /// Takes `words` apart (without the program's name); `None` when one of them is not known.
    ///
    /// An unknown word where an option may stand could be any option.
    pub(crate) fn take<'a>(&self, words: &'a [Word]) -> Option<Taken<'a>> {
        let mut taken = Taken::default();
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let text = match word {
                Word::Known(text) => text.as_str(),
                Word::Unknown(_) => return None,
            };
            if text == "--" {
                break;
            }
            if text.len() < 2 || !text.starts_with('-') {
                taken.operands.push(word);
                if self.anywhere {
                    continue;
                }
                break;
            }
            if let Some(long) = text.strip_prefix("--") {
                self.long(long, &mut rest, &mut taken)?;
            } else {
                self.bundle(text, &mut rest, &mut taken)?;
            }
        }
        taken.operands.extend(rest);
        Some(taken)
    }

    fn long<'a>(
        &self,
        written: &'a str,
        rest: &mut std::slice::Iter<'a, Word>,
        taken: &mut Taken<'a>,
    ) -> Option<()> {
        if let Some((name, value)) = written.split_once('=') {
            self.long_valued.contains(&name).then_some(())?;
            taken.options.push((name, Some(value)));
        } else if self.long.contains(&written) {
            taken.options.push((written, None));
        } else if self.long_valued.contains(&written) {
            taken.options.push((written, rest.next()?.known()));
        } else {
            return None;
        }
        Some(())
    }

    fn bundle<'a>(
        &self,
        written: &'a str,
        rest: &mut std::slice::Iter<'a, Word>,
        taken: &mut Taken<'a>,
    ) -> Option<()> {
        for (at, letter) in written.char_indices().skip(1) {
            let name = written.get(at..at + letter.len_utf8())?;
            if self.plain.contains(letter) {
                taken.options.push((name, None));
            } else if self.valued.contains(letter) {
                let value = match written.get(at + letter.len_utf8()..)? {
                    "" => rest.next()?.known(),
                    attached => Some(attached),
                };
                taken.options.push((name, value));
                return Some(());
            } else {
                return None;
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_or_refused() {
        let options = Options {
            plain: "av",
            valued: "n",
            long: &["all"],
            long_valued: &["name"],
            anywhere: false,
        };
        let words = |line: &str| -> Vec<Word> {
            line.split(' ')
                .map(|word| Word::Known(word.to_owned()))
                .collect()
        };
        for (line, operands) in [
            ("-av -n 5 rm -x", 2),
            ("-avn5 --name=x --name y --all rm", 1),
            ("-- -x", 1),
            ("-a - -a", 2),
        ] {
            let given = words(line);
            assert_eq!(
                options.take(&given).unwrap().operands.len(),
                operands,
                "{line}"
            );
        }
        for unknown in ["-x rm", "--al rm", "-n", "--name", "--all=x rm", "-avx5"] {
            assert!(options.take(&words(unknown)).is_none(), "{unknown}");
        }
        assert!(options.take(&[Word::Unknown("$x".into())]).is_none());
    }
}
