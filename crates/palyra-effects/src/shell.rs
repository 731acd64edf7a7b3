//! Shell text, read with bash's grammar (`brush-parser`) and walked completely.

use brush_parser::ast::{
    AndOr, AssignmentName, AssignmentValue, BinaryPredicate, Command,
    CommandPrefixOrSuffixItem as Item, CompoundCommand, CompoundList, ExtendedTestExpr,
    IoFileRedirectKind, IoFileRedirectTarget, IoRedirect, Pipeline, Program, SimpleCommand,
    SubshellCommand, UnaryPredicate,
};
use palyra_core::Effect;

use crate::builtins;
use crate::opaque::Opaque;
use crate::paths;
use crate::programs::Dialect;
use crate::unfold::{Input, Unfolder};
use crate::words::{self, Inner, Word};

/// Openings in one text. The parser recurses, and its stack is ours; each opening costs some.
const MOST_OPENINGS: usize = 48;
/// Subshells, functions and extended patterns. The parser tries several readings of each, and the
/// time for a text that does not fit doubles with every one that is inside another.
const MOST_PARENTHESES: usize = 10;
/// The same with `((`, which may be arithmetic or two subshells.
const MOST_DOUBLE_PARENTHESES: usize = 4;
/// The same with `case`, where it is worst.
const MOST_CASES: usize = 3;

impl Unfolder<'_> {
    /// Everything that this text does.
    pub(crate) fn shell_text(&mut self, text: &str, dialect: Dialect, depth: usize) {
        match self.text_left.checked_sub(text.len()) {
            Some(left) => self.text_left = left,
            None => return self.opaque(Opaque::TooLong),
        }
        if !is_bounded(text) {
            return self.opaque(Opaque::TooDeep);
        }
        match parse(text) {
            Some(program) => {
                self.in_text += 1;
                let mut walk = Walk {
                    to: self,
                    dialect,
                    depth,
                };
                for list in &program.complete_commands {
                    walk.list(list);
                }
                self.in_text -= 1;
            }
            None => self.opaque(Opaque::Unparsable),
        }
    }
}

fn parse(text: &str) -> Option<Program> {
    words::guarded(|| brush_parser::Parser::new(text.as_bytes(), &words::options()).parse_program())
}

/// Counted over the whole text, quoted or not: a count by depth could be fooled by quoting.
fn is_bounded(text: &str) -> bool {
    let words = || text.split(|letter: char| !letter.is_ascii_alphanumeric());
    let keyword = |word: &&str| {
        matches!(
            *word,
            "if" | "elif" | "while" | "until" | "for" | "case" | "select" | "coproc" | "function"
        )
    };
    let opens = |byte: &u8| matches!(byte, b'(' | b'{' | b'`' | b'!');
    let openings = text.bytes().filter(opens).count() + words().filter(keyword).count();
    let pairs = |wanted: fn(&[u8]) -> bool| {
        let start = std::iter::once(b' ');
        let bytes: Vec<u8> = start.chain(text.bytes()).collect();
        bytes.windows(2).filter(|pair| wanted(pair)).count()
    };
    openings <= MOST_OPENINGS
        && pairs(|pair| pair.ends_with(b"(") && pair != b"$(") <= MOST_PARENTHESES
        && pairs(|pair| pair == b"((") <= MOST_DOUBLE_PARENTHESES
        && words().filter(|word| *word == "case").count() <= MOST_CASES
        && !text.contains('\0')
}

struct Walk<'w, 'a> {
    to: &'w mut Unfolder<'a>,
    dialect: Dialect,
    depth: usize,
}

impl Walk<'_, '_> {
    fn list(&mut self, list: &CompoundList) {
        for item in &list.0 {
            self.pipeline(&item.0.first);
            for next in &item.0.additional {
                match next {
                    AndOr::And(pipeline) | AndOr::Or(pipeline) => self.pipeline(pipeline),
                }
            }
        }
    }

    fn pipeline(&mut self, pipeline: &Pipeline) {
        for command in &pipeline.seq {
            self.command(command);
        }
    }

    fn command(&mut self, command: &Command) {
        match command {
            Command::Simple(simple) => self.simple(simple),
            Command::Compound(compound, redirects) => {
                for redirect in redirects.iter().flat_map(|list| &list.0) {
                    self.redirect(redirect);
                }
                self.compound(compound);
            }
            Command::Function(function) => {
                let name = function.fname.value.clone();
                for redirect in function.body.1.iter().flat_map(|list| &list.0) {
                    self.redirect(redirect);
                }
                self.to.repeated += 1;
                self.compound(&function.body.0);
                self.to.repeated -= 1;
                self.to.functions.insert(name);
            }
            Command::ExtendedTest(test, redirects) => {
                // To other shells `[[ a > b ]]` is a command that writes a file.
                self.bash_only();
                for redirect in redirects.iter().flat_map(|list| &list.0) {
                    self.redirect(redirect);
                }
                self.test(&test.expr);
            }
        }
    }

    fn compound(&mut self, compound: &CompoundCommand) {
        match compound {
            CompoundCommand::Arithmetic(arithmetic) => {
                self.bash_only();
                self.arithmetic(&arithmetic.expr.value);
            }
            CompoundCommand::ArithmeticForClause(clause) => {
                self.bash_only();
                let parts = [&clause.initializer, &clause.condition, &clause.updater];
                for part in parts.into_iter().flatten() {
                    self.arithmetic(&part.value);
                }
                self.again(&[&clause.body.list]);
            }
            CompoundCommand::BraceGroup(group) => self.list(&group.list),
            CompoundCommand::Subshell(subshell) => self.subshell(subshell),
            CompoundCommand::ForClause(clause) => {
                self.assigns(&clause.variable_name);
                for value in clause.values.iter().flatten() {
                    self.word(&value.value);
                }
                self.again(&[&clause.body.list]);
            }
            CompoundCommand::CaseClause(clause) => {
                self.word(&clause.value.value);
                for case in &clause.cases {
                    for pattern in &case.patterns {
                        self.word(&pattern.value);
                    }
                    if let Some(body) = &case.cmd {
                        self.list(body);
                    }
                }
            }
            CompoundCommand::IfClause(clause) => {
                self.list(&clause.condition);
                self.list(&clause.then);
                for otherwise in clause.elses.iter().flatten() {
                    if let Some(condition) = &otherwise.condition {
                        self.list(condition);
                    }
                    self.list(&otherwise.body);
                }
            }
            CompoundCommand::WhileClause(clause) | CompoundCommand::UntilClause(clause) => {
                self.again(&[&clause.0, &clause.1.list]);
            }
            CompoundCommand::Coprocess(process) => {
                self.bash_only();
                if let Some(name) = &process.name {
                    self.assigns(&name.value);
                }
                self.command(&process.body);
            }
        }
    }

    /// The parts of a loop.
    fn again(&mut self, parts: &[&CompoundList]) {
        self.to.repeated += 1;
        for part in parts {
            self.list(part);
        }
        self.to.repeated -= 1;
    }

    fn subshell(&mut self, subshell: &SubshellCommand) {
        self.list(&subshell.list);
    }

    fn simple(&mut self, simple: &SimpleCommand) {
        let mut argv = Vec::new();
        let mut input = Input::Unknown;
        let prefix = simple.prefix.iter().flat_map(|prefix| &prefix.0);
        for item in prefix {
            self.item(item, &mut Vec::new(), &mut input);
        }
        if let Some(name) = &simple.word_or_name {
            argv.push(self.word(&name.value));
        }
        for item in simple.suffix.iter().flat_map(|suffix| &suffix.0) {
            self.item(item, &mut argv, &mut input);
        }
        self.run(argv, input);
    }

    fn item(&mut self, item: &Item, argv: &mut Vec<Word>, input: &mut Input) {
        match item {
            Item::Word(word) => {
                let word = self.word(&word.value);
                argv.push(word);
            }
            Item::IoRedirect(redirect) => {
                if let Some(text) = self.redirect(redirect) {
                    *input = Input::Text(text);
                }
            }
            Item::AssignmentWord(assignment, word) => {
                let value = self.assignment(assignment);
                let known = word.value.split_once('=').zip(value);
                argv.push(known.map_or_else(
                    || Word::Unknown(word.value.clone()),
                    |((name, _), value)| Word::Known(format!("{name}={value}")),
                ));
            }
            Item::ProcessSubstitution(_, subshell) => {
                self.bash_only();
                self.subshell(subshell);
                argv.push(Word::Unknown("<(…)".to_owned()));
            }
        }
    }

    fn assignment(&mut self, assignment: &brush_parser::ast::Assignment) -> Option<String> {
        match &assignment.name {
            AssignmentName::VariableName(name) => self.assigns(name),
            AssignmentName::ArrayElementName(name, index) => {
                self.bash_only();
                self.assigns(name);
                self.arithmetic(index);
            }
        }
        match &assignment.value {
            AssignmentValue::Scalar(word) => match self.word(&word.value) {
                Word::Known(value) => Some(value),
                Word::Unknown(_) => None,
            },
            AssignmentValue::Array(words) => {
                self.bash_only();
                for (index, word) in words {
                    if let Some(index) = index {
                        self.arithmetic(&index.value);
                    }
                    self.word(&word.value);
                }
                None
            }
        }
    }

    /// A command whose words are known as far as they can be.
    fn run(&mut self, argv: Vec<Word>, input: Input) {
        let called = match argv.first() {
            Some(Word::Known(name)) => name.clone(),
            Some(Word::Unknown(_)) | None => String::new(),
        };
        // Its body was walked where it was defined. A program of that name stays an effect: adding
        // a function must not take one away.
        if self.to.functions.contains(&called) && !self.to.is_program(&called) {
            return;
        }
        match builtins::of(&called) {
            Some(builtin) => builtins::run(self.to, builtin, argv, input, self.depth),
            None => self.to.argv(argv, input, self.depth),
        }
    }

    /// The effect of a redirection; gives the text when it is a known one for standard input.
    fn redirect(&mut self, redirect: &IoRedirect) -> Option<String> {
        match redirect {
            IoRedirect::File(_, kind, target) => {
                self.file_redirect(kind, target);
                None
            }
            IoRedirect::HereDocument(fd, document) => {
                let text = if document.requires_expansion {
                    let mut inner = Vec::new();
                    let word = words::read_heredoc(&document.doc.value, &mut inner);
                    self.inner(inner);
                    word.known().map(str::to_owned)
                } else {
                    Some(document.doc.value.clone())
                };
                text.filter(|_| matches!(fd, None | Some(0)))
            }
            IoRedirect::HereString(fd, word) => {
                self.bash_only();
                let word = self.word(&word.value);
                let text = word.known().map(str::to_owned);
                text.filter(|_| matches!(fd, None | Some(0)))
            }
            IoRedirect::OutputAndError(word, _) => {
                self.bash_only();
                let word = self.word(&word.value);
                self.path(&word, false, true);
                None
            }
        }
    }

    fn file_redirect(&mut self, kind: &IoFileRedirectKind, target: &IoFileRedirectTarget) {
        let (reads, writes) = match kind {
            IoFileRedirectKind::Read | IoFileRedirectKind::DuplicateInput => (true, false),
            IoFileRedirectKind::Write
            | IoFileRedirectKind::Append
            | IoFileRedirectKind::Clobber
            | IoFileRedirectKind::DuplicateOutput => (false, true),
            IoFileRedirectKind::ReadAndWrite => (true, true),
        };
        match target {
            IoFileRedirectTarget::Filename(word) => {
                let word = self.word(&word.value);
                self.path(&word, reads, writes);
            }
            IoFileRedirectTarget::Fd(_) => {}
            IoFileRedirectTarget::ProcessSubstitution(_, subshell) => {
                self.bash_only();
                self.subshell(subshell);
            }
            // `>&2` is a descriptor, `>&file` is a file.
            IoFileRedirectTarget::Duplicate(word) => {
                let word = self.word(&word.value);
                let text = word.known().unwrap_or_default().trim_end_matches('-');
                let descriptor =
                    word.known().is_some() && text.bytes().all(|byte| byte.is_ascii_digit());
                if !descriptor {
                    self.path(&word, reads, writes);
                }
            }
        }
    }

    fn path(&mut self, word: &Word, reads: bool, writes: bool) {
        let Word::Known(path) = word else {
            return self.to.opaque(Opaque::UnknownPath);
        };
        if let Some((host, port)) = paths::network_device(path) {
            self.to.connect(host, port);
        }
        if reads {
            self.to.file(path, |path| Effect::FsRead { path });
        }
        if writes {
            self.to.file(path, |path| Effect::FsWrite { path });
        }
    }

    fn test(&mut self, test: &ExtendedTestExpr) {
        match test {
            ExtendedTestExpr::And(one, other) | ExtendedTestExpr::Or(one, other) => {
                self.test(one);
                self.test(other);
            }
            ExtendedTestExpr::Not(inner) | ExtendedTestExpr::Parenthesized(inner) => {
                self.test(inner);
            }
            ExtendedTestExpr::UnaryTest(predicate, word) => {
                self.word(&word.value);
                // `-v 'a[$(id)]'` runs id.
                if matches!(
                    predicate,
                    UnaryPredicate::ShellVariableIsSetAndAssigned
                        | UnaryPredicate::ShellVariableIsSetAndNameRef
                ) {
                    self.to.opaque(Opaque::Arithmetic);
                }
            }
            ExtendedTestExpr::BinaryTest(predicate, one, other) => {
                self.word(&one.value);
                self.word(&other.value);
                if matches!(
                    predicate,
                    BinaryPredicate::ArithmeticEqualTo
                        | BinaryPredicate::ArithmeticNotEqualTo
                        | BinaryPredicate::ArithmeticLessThan
                        | BinaryPredicate::ArithmeticLessThanOrEqualTo
                        | BinaryPredicate::ArithmeticGreaterThan
                        | BinaryPredicate::ArithmeticGreaterThanOrEqualTo
                ) {
                    self.arithmetic(&one.value);
                    self.arithmetic(&other.value);
                }
            }
        }
    }

    fn arithmetic(&mut self, text: &str) {
        if !words::is_plain_arithmetic(text) {
            self.to.opaque(Opaque::Arithmetic);
        }
    }

    fn assigns(&mut self, name: &str) {
        if builtins::is_decisive(name) {
            self.to.opaque(Opaque::Environment);
        }
    }

    fn bash_only(&mut self) {
        match self.dialect {
            Dialect::Posix => self.to.opaque(Opaque::Dialect),
            Dialect::Bash => {}
        }
    }

    fn word(&mut self, text: &str) -> Word {
        let mut inner = Vec::new();
        let word = words::read(text, self.to.home, &mut inner);
        self.inner(inner);
        word
    }

    fn inner(&mut self, inner: Vec<Inner>) {
        for found in inner {
            match found {
                Inner::Command(text) => self.to.shell_text(&text, self.dialect, self.depth + 1),
                Inner::Assigns(name) => self.assigns(&name),
                Inner::Opaque(why) => self.to.opaque(why),
                Inner::BashOnly => self.bash_only(),
            }
        }
    }
}
