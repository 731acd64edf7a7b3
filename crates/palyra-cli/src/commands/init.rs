//! `palyra init`: the daemon's folders and a commented `palyra.toml`. Nothing is overwritten.

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use palyra_api::Home;

use crate::exit::Exit;
use crate::failure::Failure;
use crate::folders::{self, Folder};
use crate::output::{DIM, GOOD, Output};
use crate::safe;

/// Every setting with its default, commented out.
const CONFIG: &str = include_str!("palyra.toml");

/// What `init` found and did.
#[derive(Debug, serde::Serialize)]
struct Done {
    config: PathBuf,
    /// False when there was one already.
    config_written: bool,
    folders: Vec<Folder>,
}

pub(super) fn run(output: &Output) -> Result<Exit, Failure> {
    let home = Home::from_env()?;
    let folders = folders::create(&home)?;
    let config = home.config_file();
    let done = Done {
        config_written: write_new(&config)?,
        config,
        folders,
    };
    output.answer(&done, render)?;
    output.suggest("next: `palyra exec -- id` runs a first program, limited and recorded");
    Ok(Exit::OK)
}

/// Writes the file unless something of that name is there, a dangling link included.
fn write_new(path: &Path) -> Result<bool, Failure> {
    let mut file = match folders::private_file()
        .write(true)
        .create_new(true)
        .open(path)
    {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
        Err(error) => return Err(folders::unusable(path, &error)),
    };
    let wrote = file
        .write_all(CONFIG.as_bytes())
        .and_then(|()| file.sync_all());
    wrote.map(|()| true).map_err(|error| {
        // Half a file would be taken for the operator's own the next time.
        let _ = std::fs::remove_file(path);
        folders::unusable(path, &error)
    })
}

fn render(done: &Done) -> String {
    let what = match done.config_written {
        true => "every setting with its default, commented out",
        false => "it was there already and is left as it is",
    };
    let folder = |folder: &'_ Folder| (folder.created, folder.path.clone(), "open to you alone");
    let config = (done.config_written, done.config.clone(), what);
    let lines = done.folders.iter().map(folder).chain([config]);
    let line = |(made, path, what): (bool, PathBuf, &str)| {
        let (word, style) = if made { ("made", GOOD) } else { ("kept", DIM) };
        let path = path.display().to_string();
        format!(
            "{style}{word}{style:#}  {}  {DIM}{what}{DIM:#}\n",
            safe::line(&path)
        )
    };
    lines.map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_commented_out_under_its_section() {
        // Sections are live, so that taking the `#` from one setting is enough.
        let live = |line: &&str| !line.is_empty() && !line.starts_with(['#', '[']);
        assert_eq!(CONFIG.lines().find(live), None);
        assert_eq!(
            CONFIG.lines().filter(|line| line.starts_with('[')).count(),
            6
        );
    }
}
