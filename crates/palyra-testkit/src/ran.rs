//! What a command did.

use std::process::Output;

/// A finished command.
#[derive(Debug)]
pub struct Ran {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it wrote on standard output.
    pub stdout: String,
    /// What it wrote on standard error.
    pub stderr: String,
}

impl From<Output> for Ran {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

impl Ran {
    /// The same, if it ended with this code; panics with all it said otherwise.
    #[must_use]
    pub fn expect_code(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "\nstdout: {}\nstderr: {}",
            self.stdout,
            self.stderr
        );
        self
    }

    /// Its standard output as JSON.
    #[must_use]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| {
            panic!("{error}\nstdout: {}\nstderr: {}", self.stdout, self.stderr)
        })
    }

    /// The code of the error that it said in JSON, on either stream; empty if it said none.
    #[must_use]
    pub fn error_code(&self) -> String {
        let said = [&self.stdout, &self.stderr];
        let read = said
            .iter()
            .filter_map(|text| serde_json::from_str::<serde_json::Value>(text).ok());
        let mut codes = read.map(|it| it["error"]["code"].as_str().unwrap_or_default().to_owned());
        codes.next_back().unwrap_or_default()
    }
}
