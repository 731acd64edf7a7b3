//! `palyra tools`: what can be called.

use palyra_api::wire::{Page, Tool};

use crate::args::ToolsAction;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{GOOD, Output, WAITING};
use crate::session::Session;
use crate::table::{Cell, Column, Facts, Table};

const PATH: &str = "/api/v1/tools";

pub(super) async fn run(action: &ToolsAction, session: &Session) -> Result<Exit, Failure> {
    let output = &session.output;
    match action {
        ToolsAction::List => {
            let page: Page<Tool> = super::get(session, PATH).await?;
            output.answer(&page, |page| list(page, output))?;
        }
        ToolsAction::Show { name } => {
            let tool: Tool = super::get(session, &format!("{PATH}/{name}")).await?;
            output.answer(&tool, render)?;
        }
    }
    Ok(Exit::OK)
}

fn asks(tool: &Tool) -> Cell {
    match tool.sensitive {
        true => Cell::styled("asks", WAITING),
        false => Cell::styled("free", GOOD),
    }
}

fn list(page: &Page<Tool>, output: &Output) -> String {
    let mut table = Table::new([
        Column::left("NAME"),
        Column::left("AGENTS"),
        Column::flexible("WHAT IT DOES"),
        Column::flexible("NEEDS"),
    ]);
    for tool in &page.items {
        table.row([
            Cell::new(&tool.name),
            asks(tool),
            Cell::new(&tool.description),
            Cell::new(needs(tool)),
        ]);
    }
    output.table(&table)
}

fn needs(tool: &Tool) -> String {
    match tool.capabilities.is_empty() {
        true => "nothing".to_owned(),
        false => tool.capabilities.join(", "),
    }
}

fn render(tool: &Tool) -> String {
    let agents = match tool.sensitive {
        true => "an agent's call waits for your approval",
        false => "an agent may call it",
    };
    Facts::default()
        .with("tool", &tool.name)
        .with("does", &tool.description)
        .with("needs", needs(tool))
        .with("agents", agents)
        .with(
            "takes",
            format!("at most {} bytes of arguments", tool.max_input_bytes),
        )
        .lines("limits", Cell::json(&tool.default_limits))
        .lines("arguments", Cell::json(&tool.input_schema))
        .render()
}
