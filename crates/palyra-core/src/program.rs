//! The code of a call: which files were decided to run, and what was in them.
//!
//! A path says where a program is looked for, not what is found there a minute later. So a plan
//! names what was found: the content goes into its digest, and which file it was is compared when
//! it starts. Files that a program opens later by itself are not listed here.

use std::path::PathBuf;

use crate::digest::Digest;
use crate::plan::ProgramId;

/// What a file has to do with the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CodePart {
    /// What is started: a program, or a script that begins with `#!`.
    Program,
    /// What a script names behind its `#!`; each one runs the one before.
    Interpreter,
    /// What the program is given to run: the script of an interpreter, the program of a wrapper.
    Operand,
    /// What a shell text in the call names. The call itself may change it before it comes to it.
    Later,
}

impl CodePart {
    /// The word in records.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Program => "program",
            Self::Interpreter => "interpreter",
            Self::Operand => "operand",
            Self::Later => "later",
        }
    }
}

/// What was in a file when it was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// These bytes.
    Sha256(Digest),
    /// A file of root's that may be executed and not read: it is known by what it is.
    Unread(ProgramId),
    /// Nothing was there, and nothing may be there when it starts.
    Nothing,
}

/// One file of a call's code, as it was decided.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Pinned {
    /// Where the call looks for it.
    pub path: PathBuf,
    /// Where it really was.
    pub real: PathBuf,
    /// What it has to do with the call.
    pub part: CodePart,
    /// What was in it.
    pub content: Content,
    /// Which file it was. It is compared when it starts and stays out of the digest: the same
    /// content written anew is the same call.
    #[serde(skip)]
    pub seen: Option<ProgramId>,
    /// Whether nobody but root can change it, or what its path leads to.
    #[serde(skip)]
    pub fixed: bool,
}

/// One file of a call's code, for a person and for the record.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CodeFact {
    /// Where the call looks for it.
    pub path: PathBuf,
    /// What it has to do with the call.
    pub part: CodePart,
    /// What was in it.
    pub content: Content,
}

impl From<&Pinned> for CodeFact {
    fn from(pinned: &Pinned) -> Self {
        Self {
            path: pinned.path.clone(),
            part: pinned.part,
            content: pinned.content,
        }
    }
}

/// What stands behind `#!` in the first line of a script, as Linux reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptLine {
    /// The interpreter, as it is written.
    pub interpreter: String,
    /// All that follows it, as a single word.
    pub argument: Option<String>,
}

impl ScriptLine {
    /// How much of a file Linux looks at.
    pub const LONGEST: usize = 256;

    /// What the beginning of a file says; none when it is no script, or when its interpreter would
    /// be cut off.
    #[must_use]
    pub fn of(start: &[u8]) -> Option<Self> {
        let start = start.get(..Self::LONGEST).unwrap_or(start);
        let rest = start.strip_prefix(b"#!")?;
        let blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let ends = rest.iter().position(|byte| matches!(byte, b'\n' | 0));
        let line = match ends {
            Some(end) => rest.get(..end)?,
            // A line that goes on beyond what is looked at: Linux takes it if the interpreter's
            // name has ended before.
            None if start.len() == Self::LONGEST => {
                let first = rest.iter().position(|byte| !blank(byte))?;
                let word = rest.get(first..)?;
                word.iter().position(blank)?;
                rest
            }
            None => rest,
        };
        let text = std::str::from_utf8(line).ok()?.trim_matches([' ', '\t']);
        let (interpreter, argument) = match text.split_once([' ', '\t']) {
            Some((interpreter, rest)) => (interpreter, rest.trim_matches([' ', '\t'])),
            None => (text, ""),
        };
        (!interpreter.is_empty()).then(|| Self {
            interpreter: interpreter.to_owned(),
            argument: (!argument.is_empty()).then(|| argument.to_owned()),
        })
    }

    /// The words that Linux starts the interpreter with, for a script at `path` with these words.
    #[must_use]
    pub fn words(&self, path: &str, argv: &[String]) -> Vec<String> {
        let mut words = vec![self.interpreter.clone()];
        words.extend(self.argument.clone());
        words.push(path.to_owned());
        words.extend(argv.iter().skip(1).cloned());
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &[u8]) -> Option<(String, Option<String>)> {
        ScriptLine::of(text).map(|line| (line.interpreter, line.argument))
    }

    #[test]
    fn a_first_line_is_read_as_linux_reads_it() {
        let one = |word: &str, rest: Option<&str>| Some((word.to_owned(), rest.map(str::to_owned)));
        assert_eq!(line(b"#!/bin/sh\nx"), one("/bin/sh", None));
        assert_eq!(line(b"#! /bin/sh -e \nx"), one("/bin/sh", Some("-e")));
        assert_eq!(
            line(b"#!/usr/bin/env -S a  b\n"),
            one("/usr/bin/env", Some("-S a  b"))
        );
        assert_eq!(line(b"#!/bin/sh"), one("/bin/sh", None));
        assert_eq!(line(b"#!bin/sh\n"), one("bin/sh", None));
        for no_script in [b"".as_slice(), b"#", b"#!", b"#!  \n/bin/sh", b"x#!/bin/sh"] {
            assert_eq!(line(no_script), None, "{no_script:?}");
        }
        // Beyond 256 bytes: an interpreter that is cut off is none.
        let long = [b"#!/".as_slice(), &[b'a'; 300]].concat();
        assert_eq!(line(&long), None);
        let long = [b"#!/bin/sh ".as_slice(), &[b'a'; 300]].concat();
        assert_eq!(line(&long).unwrap().0, "/bin/sh");
    }

    #[test]
    fn an_interpreter_is_started_with_the_script_in_place_of_its_name() {
        let line = ScriptLine::of(b"#!/bin/sh -e\n").unwrap();
        let argv = ["x", "1", "2"].map(str::to_owned);
        assert_eq!(
            line.words("/w/x", &argv),
            ["/bin/sh", "-e", "/w/x", "1", "2"]
        );
    }
}
