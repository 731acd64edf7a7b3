//! Why a call could not be understood completely.

/// One reason. Each makes the call opaque.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Opaque {
    /// The shell's grammar and the text do not fit, or the parser gave up.
    Unparsable,
    /// Wrappers or shells inside each other, beyond the bound.
    TooDeep,
    /// More text or more commands than are read.
    TooLong,
    /// The name of the program is only known when it runs.
    DynamicCommand,
    /// The text or the options of a command are only known when it runs.
    DynamicArguments,
    /// A program that was not found, or whose file cannot be told.
    UnknownProgram,
    /// The program's name says one thing and its file another.
    Disguised,
    /// It runs another program in a way that is not known here.
    UnknownWrapper,
    /// An option of a wrapper or client that is not known here.
    UnknownOption,
    /// An option by which a known program runs another, or reads options elsewhere.
    RunsProgram,
    /// A program read from a pipe or a file that is written as it runs.
    StdinProgram,
    /// What it reads is typed while it runs.
    LiveInput,
    /// `eval`, `source`, `trap`, aliases and other text that becomes commands.
    Evaluates,
    /// A variable that changes what programs are found or what they do.
    Environment,
    /// Arithmetic on variables, which bash evaluates as commands if they say so.
    Arithmetic,
    /// Something that `sh` means differently on different machines.
    Dialect,
    /// A path that is only known when it runs, or that cannot be resolved.
    UnknownPath,
    /// It connects, and where to is not in its arguments.
    UnknownHost,
}

impl Opaque {
    /// For a person, after "because".
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unparsable => "its shell text cannot be read",
            Self::TooDeep => "it is nested too deeply",
            Self::TooLong => "it is too long to be read",
            Self::DynamicCommand => "which program it runs is only known when it runs",
            Self::DynamicArguments => "what it runs depends on a value only known when it runs",
            Self::UnknownProgram => "a program in it was not found",
            Self::Disguised => "a program in it is another one than its name says",
            Self::UnknownWrapper => "it hands a command to a program that is not known here",
            Self::UnknownOption => "it has an option that is not known here",
            Self::RunsProgram => "an option in it runs another program",
            Self::StdinProgram => "it runs what it reads from its input",
            Self::LiveInput => "what it does is typed while it runs",
            Self::Evaluates => "it turns text into commands",
            Self::Environment => "it changes a variable that decides what programs do",
            Self::Arithmetic => "it calculates with variables, which can run commands",
            Self::Dialect => "different shells read it differently",
            Self::UnknownPath => "a path in it is only known when it runs",
            Self::UnknownHost => "it connects to a host that it does not name",
        }
    }

    /// The word in vectors and records.
    #[must_use]
    pub fn code(self) -> String {
        let mut code = String::new();
        for letter in format!("{self:?}").chars() {
            if letter.is_ascii_uppercase() && !code.is_empty() {
                code.push('_');
            }
            code.push(letter.to_ascii_lowercase());
        }
        code
    }
}
