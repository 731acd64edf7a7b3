//! From argv to segments: programs are resolved, wrappers and shells unfolded until leaves remain.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use palyra_core::{Effect, EgressHost, ProgramFacts, ProgramGroup};

use crate::analysis::{Code, Segment};
use crate::opaque::Opaque;
use crate::programs::{self, Dialect, Entry};
use crate::resolver::Resolver;
use crate::words::Word;
use crate::{builtins, network, paths, risk, wrappers};

/// Wrappers and shells inside each other.
const DEEPEST: usize = 12;
/// Commands in one call.
const MOST_SEGMENTS: usize = 512;
/// Folders that a call may stand in, after its `cd`s.
const MOST_FOLDERS: usize = 8;

/// What a command reads on standard input.
#[derive(Debug, Clone)]
pub(crate) enum Input {
    /// Nothing, or what cannot be known.
    Unknown,
    /// Exactly this.
    Text(String),
}

/// Collects what a call does. Everything here only grows.
pub(crate) struct Unfolder<'a> {
    pub(crate) resolver: &'a dyn Resolver,
    pub(crate) path: &'a str,
    pub(crate) workspace: &'a Path,
    pub(crate) home: Option<&'a str>,
    pub(crate) folders: Vec<PathBuf>,
    pub(crate) functions: BTreeSet<String>,
    /// Loops and functions around what is read now: it may run again, in another folder.
    pub(crate) repeated: usize,
    pub(crate) segments: Vec<Segment>,
    pub(crate) effects: Vec<Effect>,
    pub(crate) programs: Vec<ProgramFacts>,
    pub(crate) opaque: BTreeSet<Opaque>,
    pub(crate) notes: BTreeSet<risk::Note>,
    pub(crate) code: Vec<Code>,
    /// Shell texts around what is read now.
    pub(crate) in_text: usize,
    /// Shell text that may still be read, in bytes.
    pub(crate) text_left: usize,
}

impl Unfolder<'_> {
    pub(crate) fn opaque(&mut self, why: Opaque) {
        self.opaque.insert(why);
    }

    /// One command.
    pub(crate) fn argv(&mut self, words: Vec<Word>, input: Input, depth: usize) {
        if depth > DEEPEST {
            return self.opaque(Opaque::TooDeep);
        }
        if self.segments.len() >= MOST_SEGMENTS {
            return self.opaque(Opaque::TooLong);
        }
        let program = match words.first() {
            None => return,
            Some(Word::Unknown(_)) => {
                self.opaque(Opaque::DynamicCommand);
                None
            }
            Some(Word::Known(name)) => self.find(name),
        };
        self.segments.push(Segment {
            words: words.clone(),
            program: program.clone(),
        });
        if let Some(program) = program {
            self.program(&program, &words, input, depth);
        }
    }

    /// The program of this name, wherever the call may stand by now.
    fn find(&mut self, name: &str) -> Option<PathBuf> {
        let mut found: Vec<PathBuf> = Vec::new();
        for folder in &self.folders {
            match self.resolver.program(name, self.path, folder) {
                Some(program) if !found.contains(&program) => found.push(program),
                Some(_) => {}
                None => {
                    self.opaque.insert(Opaque::UnknownProgram);
                }
            }
            if !name.contains('/') {
                break;
            }
        }
        if found.len() > 1 {
            self.opaque(Opaque::DynamicCommand);
        }
        for program in &found {
            self.exec(program);
            self.runs(program.clone());
        }
        found.into_iter().next()
    }

    /// Whether there is a program of this name.
    pub(crate) fn is_program(&self, name: &str) -> bool {
        let mut folders = self.folders.iter();
        folders.any(|folder| self.resolver.program(name, self.path, folder).is_some())
    }

    fn exec(&mut self, program: &Path) {
        let program = program.to_owned();
        self.effect(Effect::Exec { program });
    }

    /// A program that was found, with its argv.
    fn program(&mut self, program: &Path, words: &[Word], input: Input, depth: usize) {
        let Some(real) = self.resolver.real(program) else {
            return self.opaque(Opaque::UnknownProgram);
        };
        let called = program.to_str().and_then(programs::look_up);
        let is = real.to_str().and_then(programs::look_up);
        let local = real.starts_with(self.workspace);
        let (name, entry) = self.identity(called, is);
        self.note_program(program, Some(real.clone()), entry, local);
        if local {
            self.notes.insert(risk::Note::Local);
        }
        if let Some(line) = self.resolver.interpreter(program) {
            // What is neither the system's nor the workspace's may still be the agent's.
            let local = local || !paths::is_of_system(&real);
            self.script(&line, program, words, local, depth);
        }
        self.dispatch(name, entry, program, words, input, depth);
    }

    /// By its name and by its file; when they disagree in a way that matters, it is a disguise.
    fn identity(
        &mut self,
        called: Option<(&'static str, &'static Entry)>,
        is: Option<(&'static str, &'static Entry)>,
    ) -> (&'static str, &'static Entry) {
        let nothing = ("", programs::entry(""));
        let (Some(is), Some(called)) = (is, called) else {
            return called.or(is).unwrap_or(nothing);
        };
        // One file with many names: the name decides.
        if matches!(is.0, "busybox" | "toybox" | "coreutils") || is.0 == called.0 {
            return called;
        }
        let same = |group| is.1.is(group) == called.1.is(group);
        let read = is.1.shell.is_some() == called.1.shell.is_some();
        if read && same(ProgramGroup::Interpreters) && same(ProgramGroup::Wrappers) {
            return called;
        }
        self.opaque(Opaque::Disguised);
        is
    }

    fn note_program(&mut self, program: &Path, real: Option<PathBuf>, entry: &Entry, local: bool) {
        let mut groups = entry.groups.clone();
        if local {
            groups.push(ProgramGroup::Local);
        }
        groups.sort_unstable();
        groups.dedup();
        match self
            .programs
            .iter_mut()
            .find(|known| known.program == program)
        {
            Some(known) => {
                known.groups.extend(groups);
                known.groups.sort_unstable();
                known.groups.dedup();
            }
            None => self.programs.push(ProgramFacts {
                program: program.to_owned(),
                real: real.filter(|real| real != program),
                groups,
            }),
        }
    }

    /// A script runs its interpreter; one of the workspace is code like any other operand.
    fn script(&mut self, line: &str, script: &Path, words: &[Word], local: bool, depth: usize) {
        let mut parts = line
            .split_whitespace()
            .map(|part| Word::Known(part.to_owned()));
        let Some(Word::Known(interpreter)) = parts.next() else {
            return self.opaque(Opaque::UnknownProgram);
        };
        if !local {
            // What it runs is the script, which no agent wrote; so here it counts as no interpreter.
            let found = self.resolver.program(&interpreter, "", Path::new("/"));
            let Some(found) = found.filter(|_| interpreter.starts_with('/')) else {
                return self.opaque(Opaque::UnknownProgram);
            };
            self.exec(&found);
            let real = self.resolver.real(&found);
            return self.note_program(&found, real, programs::entry(""), false);
        }
        let mut argv = vec![Word::Known(interpreter)];
        argv.extend(parts);
        argv.push(Word::Known(script.to_string_lossy().into_owned()));
        argv.extend(words.iter().skip(1).cloned());
        self.argv(argv, Input::Unknown, depth + 1);
    }

    fn dispatch(
        &mut self,
        name: &'static str,
        entry: &'static Entry,
        program: &Path,
        words: &[Word],
        input: Input,
        depth: usize,
    ) {
        let arguments = words.get(1..).unwrap_or_default();
        risk::note_flags(name, arguments, &mut self.notes);
        self.note_operands(name, entry, arguments);
        self.flags(name, entry, arguments);
        if let Some(dialect) = entry.shell {
            return self.shell(dialect, arguments, input, depth);
        }
        if entry.is(ProgramGroup::Interpreters) {
            return self.interpreter(name, arguments);
        }
        if entry.is(ProgramGroup::Wrappers) {
            wrappers::unfold(self, name, program, arguments, input, depth);
        }
        if entry.is(ProgramGroup::Network) {
            network::unfold(self, name, arguments);
        }
        if matches!(name, "find") {
            wrappers::find(self, program, arguments, depth);
        }
        if entry.is(ProgramGroup::Build) {
            self.build(name, arguments);
        }
        let system = entry.is(ProgramGroup::System) && !entry.is(ProgramGroup::Wrappers);
        if !entry.plain && (entry.groups.is_empty() || system) {
            self.maybe_wrapper(arguments);
        }
    }

    /// Options by which this program runs another one, also those that only show when it runs.
    fn flags(&mut self, name: &str, entry: &Entry, arguments: &[Word]) {
        let options = || {
            let ends = |word: &&Word| word.known() == Some("--");
            arguments.iter().take_while(move |word| !ends(word))
        };
        let flagged = |word: &Word| word.known().is_some_and(|text| entry.is_exec_flag(text));
        // `tar xIf` needs no dash.
        let old = options()
            .next()
            .and_then(Word::known)
            .map(|first| format!("-{first}"));
        let old = old.filter(|_| matches!(name, "tar" | "ar"));
        if options().any(flagged) || old.is_some_and(|first| entry.is_exec_flag(&first)) {
            self.opaque(Opaque::RunsProgram);
        }
        let git = name == "git";
        if entry.has_exec_flags() && !git && options().any(Word::may_be_option) {
            self.opaque(Opaque::DynamicArguments);
        }
        // An archive on another machine.
        let remote = |word: &Word| {
            let place = word.known().and_then(|text| text.split_once(':'));
            place.is_some_and(|(host, _)| !host.contains('/'))
        };
        if matches!(name, "tar" | "cpio") && arguments.iter().any(remote) {
            self.opaque(Opaque::UnknownHost);
        }
    }

    /// Most build tools run what the workspace tells them to, and their group says so. Here is
    /// what they run because the call tells them to.
    fn build(&mut self, name: &str, arguments: &[Word]) {
        let operands = || {
            arguments
                .iter()
                .filter(|word| !word.shown().starts_with(['-', '+']))
        };
        let command = operands().next().map(Word::known);
        match (name, command) {
            ("cargo", Some(Some(command))) if !is_cargo_command(command) => {
                self.opaque(Opaque::UnknownWrapper);
            }
            (
                "npm" | "yarn" | "pnpm" | "cargo" | "go" | "dotnet" | "pre-commit",
                Some(Some("run")),
            ) => {}
            (_, Some(Some("run" | "exec" | "x" | "dlx" | "shell" | "develop" | "tool"))) => {
                self.opaque(Opaque::UnknownWrapper);
            }
            (_, Some(None)) => self.opaque(Opaque::DynamicArguments),
            _ => {}
        }
        // `make CC=x` is `CC=x make`.
        let decisive = |word: &Word| {
            let name = word.shown().split_once('=').map(|(name, _)| name);
            name.is_some_and(|name| builtins::is_decisive(name.trim_end_matches([':', '+', '?'])))
        };
        if operands().any(decisive) {
            self.opaque(Opaque::Environment);
        }
    }

    /// It turned out to run others, although its name does not say so.
    pub(crate) fn runs_others(&mut self, program: &Path) {
        self.note_program(program, None, programs::entry("xargs"), false);
    }

    /// The command `name`, run by a program that holds many (busybox).
    pub(crate) fn applet(&mut self, program: &Path, words: &[Word], input: Input, depth: usize) {
        if depth > DEEPEST {
            return self.opaque(Opaque::TooDeep);
        }
        let Some(Word::Known(name)) = words.first() else {
            return self.opaque(Opaque::DynamicCommand);
        };
        let Some((name, entry)) = programs::look_up(name) else {
            return self.opaque(Opaque::UnknownWrapper);
        };
        self.segments.push(Segment {
            words: words.to_vec(),
            program: Some(program.to_owned()),
        });
        self.note_program(program, None, entry, false);
        self.dispatch(name, entry, program, words, input, depth);
    }

    /// A program nobody here knows, with an operand that is a program: it may well run it.
    fn maybe_wrapper(&mut self, arguments: &[Word]) {
        if arguments.iter().any(Word::may_be_option) {
            return self.opaque(Opaque::DynamicArguments);
        }
        let operands = arguments.iter().filter_map(Word::known);
        // `--exec=ls` and `"ls -l"` are programs as well.
        let words = operands.map(|text| match text.strip_prefix('-') {
            Some(option) => option.split_once('=').map_or("", |(_, value)| value),
            None => text,
        });
        let first = words.filter_map(|text| text.split_whitespace().next());
        let mut named = first.filter(|text| !text.starts_with('-'));
        if named.by_ref().take(32).any(|text| self.is_program(text)) || named.next().is_some() {
            self.opaque(Opaque::UnknownWrapper);
        }
    }

    /// A shell's own arguments.
    fn shell(&mut self, dialect: Dialect, arguments: &[Word], input: Input, depth: usize) {
        let mut command = false;
        let mut stdin = false;
        let mut rest = arguments.iter();
        let operand = loop {
            let Some(word) = rest.next() else { break None };
            let Some(text) = word.known() else {
                return self.opaque(Opaque::DynamicArguments);
            };
            match text {
                "--" => break rest.next(),
                "--norc" | "--noprofile" | "--verbose" => {}
                "-" => break rest.next(),
                "-o" | "+o" => {
                    if !rest.next().is_some_and(builtins::is_shell_option) {
                        return self.opaque(Opaque::UnknownOption);
                    }
                }
                _ if text.starts_with("--") => return self.opaque(Opaque::UnknownOption),
                _ if text.starts_with(['-', '+']) => {
                    let letters = text.get(1..).unwrap_or_default();
                    // `-euo pipefail`: the last letter takes a word.
                    let letters = match letters.strip_suffix('o') {
                        Some(before) => {
                            if !rest.next().is_some_and(builtins::is_shell_option) {
                                return self.opaque(Opaque::UnknownOption);
                            }
                            before
                        }
                        None => letters,
                    };
                    if !letters
                        .chars()
                        .all(|letter| "abcefhlmnpstuvxBCEPT".contains(letter))
                    {
                        return self.opaque(Opaque::UnknownOption);
                    }
                    // A login shell runs files of the home first, and they may set `PATH`.
                    if letters.contains('l') {
                        self.opaque(Opaque::Environment);
                    }
                    command |= letters.contains('c');
                    stdin |= letters.contains('s');
                }
                _ => break Some(word),
            }
        };
        match (operand, command) {
            (Some(Word::Known(text)), true) => self.shell_text(text, dialect, depth + 1),
            (Some(Word::Unknown(_)), true) | (None, true) => self.opaque(Opaque::DynamicArguments),
            (Some(Word::Known(script)), false) if !stdin => self.script_file(script),
            (Some(Word::Unknown(_)), false) => self.opaque(Opaque::DynamicArguments),
            (Some(Word::Known(_)) | None, false) => match input {
                Input::Text(text) => self.shell_text(&text, dialect, depth + 1),
                Input::Unknown => self.opaque(Opaque::StdinProgram),
            },
        }
    }

    /// A script by its file: read, and run as code that is not read here.
    pub(crate) fn script_file(&mut self, script: &str) {
        if script == "-" || script.starts_with("/dev/") || script.starts_with("/proc/") {
            return self.opaque(Opaque::StdinProgram);
        }
        for folder in self.folders.clone() {
            self.runs(folder.join(script));
        }
        self.file(script, |path| Effect::FsRead { path });
    }

    /// A file that is run.
    fn runs(&mut self, path: PathBuf) {
        let at_once = self.in_text == 0;
        match self.code.iter_mut().find(|known| known.path == path) {
            Some(known) => known.at_once &= at_once,
            None => self.code.push(Code { path, at_once }),
        }
    }

    /// An effect on a file named in the call.
    pub(crate) fn file(&mut self, given: &str, effect: impl Fn(PathBuf) -> Effect) {
        for folder in self.folders.clone() {
            match self.resolver.real(&folder.join(given)) {
                Some(real) if paths::is_harmless(&real) => {}
                Some(real) => self.effect(effect(real)),
                None => self.opaque(Opaque::UnknownPath),
            }
        }
    }

    pub(crate) fn effect(&mut self, effect: Effect) {
        if !self.effects.contains(&effect) {
            self.effects.push(effect);
        }
    }

    /// A host that the call asks for. More than one host at once is nobody in particular.
    pub(crate) fn effects_of_request(&mut self, host: Option<EgressHost>, port: Option<u16>) {
        match host {
            Some(host) => self.effect(Effect::NetConnect { host, port }),
            None => self.opaque(Opaque::UnknownHost),
        }
    }

    pub(crate) fn connect(&mut self, host: &str, port: Option<u16>) {
        match host.parse::<EgressHost>() {
            Ok(host) => self.effect(Effect::NetConnect { host, port }),
            Err(_) => self.opaque(Opaque::UnknownHost),
        }
    }

    /// A shell's `cd`. What was read before it may run after it: the body of a loop or a function.
    pub(crate) fn cd(&mut self, given: &str) {
        if self.repeated > 0 || !self.functions.is_empty() {
            self.opaque(Opaque::UnknownPath);
        }
        self.change_folder(given);
    }

    /// Stands in another folder from here on, or may.
    pub(crate) fn change_folder(&mut self, given: &str) {
        for folder in self.folders.clone() {
            for way in [folder.join(given), paths::logical(&folder, given)] {
                match self.resolver.real(&way) {
                    Some(real) if self.folders.contains(&real) => {}
                    Some(real) if self.folders.len() < MOST_FOLDERS => self.folders.push(real),
                    Some(_) => self.opaque(Opaque::TooLong),
                    None => self.opaque(Opaque::UnknownPath),
                }
            }
        }
    }
}

/// Commands that come with cargo. Others are programs of the name `cargo-…`.
fn is_cargo_command(command: &str) -> bool {
    const COMMANDS: &str = "add b bench build c check clean clippy d doc fetch fix fmt \
        generate-lockfile help info init install locate-project login logout metadata new nextest owner \
        package pkgid publish r read-manifest remove report rm run rustc rustdoc search t test tree \
        uninstall update vendor verify-project version yank";
    COMMANDS.split_whitespace().any(|known| known == command)
}
