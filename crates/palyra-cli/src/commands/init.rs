//! `palyra init`: the daemon's folders and a commented `palyra.toml`. Nothing is overwritten.

use std::io::{ErrorKind, IsTerminal, Write};
use std::path::{Path, PathBuf};

use palyra_api::Home;
use palyra_policy::{Baseline, UnknownBaseline};

use super::policy;
use crate::args::{Init, KeyStoreArg};
use crate::exit::{Exit, Meaning};
use crate::failure::Failure;
use crate::folders::{self, Folder};
use crate::output::{DIM, GOOD, Output, STRONG};
use crate::safe;

/// Every setting with its default, commented out.
const CONFIG: &str = include_str!("palyra.toml");
/// The line of it that is written live.
const BASELINE: &str = "#baseline = \"standard\"";
/// And the one about the vault's key.
const KEYSTORE: &str = "#keystore = \"file\"";

/// What `init` found and did.
#[derive(Debug, serde::Serialize)]
struct Done {
    config: PathBuf,
    /// False when there was one already.
    config_written: bool,
    /// What decides where the operator's policies say nothing else.
    baseline: &'static str,
    /// Where the vault's key is kept.
    keystore: String,
    folders: Vec<Folder>,
}

pub(super) fn run(args: &Init, output: &Output) -> Result<Exit, Failure> {
    let home = Home::from_env()?;
    let folders = folders::create(&home)?;
    let config = home.config_file();
    let there = std::fs::symlink_metadata(&config).is_ok();
    let given = args.baseline.map(Baseline::from);
    let wanted = match (given, there) {
        (Some(given), _) => given,
        (None, true) => policy::configured_baseline()?,
        (None, false) => ask(output)?,
    };
    let asked = args.keystore.map(KeyStoreArg::as_str);
    let keystore = asked.unwrap_or("file");
    let config_written = !there && write_new(&config, wanted, keystore)?;
    if !config_written && given.is_some() {
        is_configured(&config, wanted)?;
    }
    let keystore = match config_written {
        true => keystore.to_owned(),
        false => configured_keystore(&config, asked)?,
    };
    let done = Done {
        config_written,
        config,
        baseline: wanted.as_str(),
        keystore,
        folders,
    };
    output.answer(&done, render)?;
    output.suggest("next: `palyra exec -- id` runs a first program, limited and recorded");
    Ok(Exit::OK)
}

/// What was asked for and what the file says must not differ silently.
fn is_configured(config: &Path, wanted: Baseline) -> Result<(), Failure> {
    let found = policy::configured_baseline()?;
    if found == wanted {
        return Ok(());
    }
    Err(Failure::new(
        Meaning::Error,
        "config_exists",
        format!(
            "`{}` is there already, with the baseline `{found}`, and is left as it is",
            safe::line(&config.display().to_string())
        ),
        format!("set `baseline = \"{wanted}\"` under `[policy]` in it, then restart the daemon"),
    ))
}

/// The key store that the file names, which must be the one that was asked for.
fn configured_keystore(config: &Path, asked: Option<&str>) -> Result<String, Failure> {
    let text = std::fs::read_to_string(config).unwrap_or_default();
    let table: toml::Table = toml::from_str(&text).unwrap_or_default();
    let found = table.get("vault").and_then(|vault| vault.get("keystore"));
    let found = found.and_then(toml::Value::as_str).unwrap_or("file");
    match asked {
        Some(asked) if asked != found => Err(Failure::new(
            Meaning::Error,
            "config_exists",
            format!(
                "`{}` is there already, with the key store `{}`, and is left as it is",
                safe::line(&config.display().to_string()),
                safe::line(found)
            ),
            format!(
                "where no vault was made yet, set `keystore = \"{asked}\"` under `[vault]` in it; \
                 a vault keeps the store it was made with"
            ),
        )),
        Some(_) | None => Ok(found.to_owned()),
    }
}

/// Asks a person at a terminal; nobody else is asked.
fn ask(output: &Output) -> Result<Baseline, Failure> {
    let at_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !at_terminal || output.is_json() {
        return Ok(Baseline::default());
    }
    output.say("what decides where your own policies say nothing else?");
    for baseline in Baseline::ALL {
        let what = meaning(baseline);
        output.say(&format!("  {STRONG}{baseline}{STRONG:#}: {what}"));
    }
    output.say("a name, or nothing for `standard`:");
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .map_err(|error| Failure::usage(error.to_string(), "name one with `--baseline`"))?;
    match line.trim() {
        "" => Ok(Baseline::default()),
        name => name.parse().map_err(|error: UnknownBaseline| {
            Failure::usage(error.to_string(), "name one with `--baseline`")
        }),
    }
}

const fn meaning(baseline: Baseline) -> &'static str {
    match baseline {
        Baseline::Standard => "an agent uses plain tools freely and asks before sensitive ones",
        Baseline::Sandboxed => "what stays inside a strong sandbox runs unasked; the rest asks",
        Baseline::Locked => "nothing of an agent runs without your yes to exactly that call",
    }
}

/// The file, with this baseline chosen.
fn config_with(baseline: Baseline, keystore: &str) -> String {
    let what = meaning(baseline);
    let chosen = format!("# {baseline}: {what}.\nbaseline = \"{baseline}\"");
    let key = format!("keystore = \"{keystore}\"");
    CONFIG
        .replacen(BASELINE, &chosen, 1)
        .replacen(KEYSTORE, &key, 1)
}

/// Writes the file unless something of that name is there, a dangling link included.
fn write_new(path: &Path, baseline: Baseline, keystore: &str) -> Result<bool, Failure> {
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
        .write_all(config_with(baseline, keystore).as_bytes())
        .and_then(|()| file.sync_all());
    wrote.map(|()| true).map_err(|error| {
        // Half a file would be taken for the operator's own the next time.
        let _ = std::fs::remove_file(path);
        folders::unusable(path, &error)
    })
}

fn render(done: &Done) -> String {
    let what = match done.config_written {
        true => "the baseline, and every other setting with its default, commented out",
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
    let weakest = match done.keystore.as_str() {
        "file" => " (the weakest: a file; `palyra init --keystore` names others)",
        _ => "",
    };
    let keystore = format!("key store  {}{weakest}\n", safe::line(&done.keystore));
    lines.map(line).chain([keystore]).collect()
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
            8
        );
    }

    #[test]
    fn the_chosen_baseline_and_key_store_are_the_live_settings() {
        for baseline in Baseline::ALL {
            let text = config_with(baseline, "passphrase");
            let live = |line: &&str| !line.is_empty() && !line.starts_with(['#', '[']);
            let live: Vec<&str> = text.lines().filter(live).collect();
            let wanted = format!("baseline = \"{baseline}\"");
            assert_eq!(live, [wanted.as_str(), "keystore = \"passphrase\""]);
            let settings: toml::Table = toml::from_str(&text).unwrap();
            assert_eq!(
                settings["policy"]["baseline"].as_str(),
                Some(baseline.as_str())
            );
        }
    }
}
