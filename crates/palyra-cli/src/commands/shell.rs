//! Completion scripts, man pages and the table of exit codes: what one definition of the command
//! line gives away for free.

use std::io::Write as _;
use std::path::Path;

use anstream::adapter::strip_str;
use palyra_api::wire::OutputStream;
use serde_json::json;

use crate::args::{Completions, Man};
use crate::examples;
use crate::exit::{Exit, Meaning};
use crate::failure::Failure;
use crate::help;
use crate::output::Output;
use crate::safe;

pub(super) fn completions(args: &Completions, output: &Output) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut help::command(), "palyra", &mut script);
    if output.is_json() {
        let script = String::from_utf8_lossy(&script);
        output.document(&json!({"shell": args.shell.to_string(), "script": script}))?;
    } else {
        output.raw(OutputStream::Stdout, &script)?;
    }
    Ok(Exit::OK)
}

pub(super) fn man(args: &Man, output: &Output) -> Result<Exit, Failure> {
    let Some(folder) = &args.folder else {
        let page = page(help::command(), "palyra").map_err(|error| Failure::unwritable(&error))?;
        if output.is_json() {
            let page = String::from_utf8_lossy(&page);
            output.document(&json!({"pages": [{"name": "palyra.1", "text": page}]}))?;
        } else {
            output.raw(OutputStream::Stdout, &page)?;
        }
        return Ok(Exit::OK);
    };
    let mut command = help::command();
    command.build();
    let mut written = Vec::new();
    write_pages(&command, "palyra", folder, &mut written).map_err(|error| {
        Failure::new(
            Meaning::Error,
            "man_not_written",
            format!(
                "the pages could not be written to `{}`: {error}",
                folder.display()
            ),
            "name a folder that you may write to, such as `palyra man share/man/man1`",
        )
    })?;
    let pages: Vec<_> = written.iter().map(|name| json!({"name": name})).collect();
    let shown = safe::line(&folder.display().to_string());
    output.answer(&json!({"folder": folder, "pages": pages}), |_| {
        format!("wrote {} pages to {shown}\n", written.len())
    })?;
    Ok(Exit::OK)
}

pub(super) fn exit_codes(output: &Output) -> Result<Exit, Failure> {
    let rows: Vec<_> = Meaning::ALL
        .map(Meaning::row)
        .iter()
        .map(|row| json!({"command": row.general, "exec": row.exec, "meaning": row.what}))
        .collect();
    output.answer(&json!({"items": rows}), |_| {
        format!("{}\n", help::exit_codes())
    })?;
    Ok(Exit::OK)
}

fn write_pages(
    command: &clap::Command,
    path: &str,
    folder: &Path,
    written: &mut Vec<String>,
) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let file = format!("{}.1", path.replace(' ', "-"));
    std::fs::write(folder.join(&file), page(command.clone(), path)?)?;
    written.push(file);
    for sub in command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help")
    {
        write_pages(sub, &format!("{path} {}", sub.get_name()), folder, written)?;
    }
    Ok(())
}

/// One page. The examples lead here as in `--help`, right after the synopsis.
fn page(command: clap::Command, path: &str) -> std::io::Result<Vec<u8>> {
    let mut page = Vec::new();
    let subcommands = command.has_subcommands();
    let version = concat!("palyra ", env!("CARGO_PKG_VERSION"));
    let man = clap_mangen::Man::new(command)
        .source(version)
        .manual("Palyra");
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    section(&mut page, "EXAMPLES")?;
    for (line, what) in examples::of(path) {
        writeln!(page, ".TP\n\\fB{}\\fR\n{}", roff(line), roff(what))?;
    }
    man.render_options_section(&mut page)?;
    if subcommands {
        man.render_subcommands_section(&mut page)?;
    }
    section(&mut page, "EXIT STATUS")?;
    writeln!(
        page,
        ".nf\n{}\n.fi",
        roff(&strip_str(&help::exit_codes()).to_string())
    )?;
    Ok(page)
}

fn section(page: &mut Vec<u8>, name: &str) -> std::io::Result<()> {
    writeln!(page, ".SH \"{name}\"")
}

/// Text that troff takes as it is: no command at the start of a line, hyphens that can be copied.
fn roff(text: &str) -> String {
    let escaped = text
        .replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('\'', "\\(aq");
    escaped
        .lines()
        .map(|line| {
            if line.starts_with('.') {
                format!("\\&{line}")
            } else {
                line.to_owned()
            }
        })
        .collect::<Vec<_>>()
        .join("\n")
}
