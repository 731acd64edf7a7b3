"""What an agent's client meets, told by the official Python SDK.

Arguments: the program `palyra`, and `legacy` or a protocol revision. The environment is the
daemon's owner's; the agent `claude` is registered. Every line that is not true ends it.
"""

import asyncio
import json
import subprocess
import sys

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.shared.exceptions import MCPError

PALYRA, MODE = sys.argv[1], sys.argv[2]


def person(*words):
    """What the person at this machine does."""
    done = subprocess.run([PALYRA, *words, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return json.loads(done.stdout)


def server(*words):
    import os

    env = {name: os.environ[name] for name in os.environ}
    words = ["mcp", "serve", "--as", "agent:claude", *words]
    return stdio_client(StdioServerParameters(command=PALYRA, args=words, env=env))


async def waiting():
    """The one approval that waits."""
    for _ in range(600):
        items = person("approvals", "list")["items"]
        if items:
            return items[0]
        await asyncio.sleep(0.05)
    raise AssertionError("nothing waits")


def text_of(result):
    return result.content[0].text


async def lists(client):
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    expected = {
        "palyra_echo",
        "palyra_process_run",
        "palyra_fs_read",
        "palyra_fs_list",
        "palyra_fs_write",
        "palyra_fs_apply_patch",
    }
    assert set(tools) == expected, set(tools)
    run, read = tools["palyra_process_run"], tools["palyra_fs_read"]
    assert run.title == "Run a program" and run.output_schema and run.input_schema["required"]
    assert run.annotations.destructive_hint and not run.annotations.read_only_hint
    assert read.annotations.read_only_hint
    assert "interactive" not in run.input_schema["properties"]


async def runs_what_needs_nobody(client):
    result = await client.call_tool("palyra_echo", {"message": "grüße \u202e\u0007 \U0001f600"})
    said = result.structured_content
    assert not result.is_error and said["decision"] == "permitted", said
    assert said["output"] == {"message": "grüße \u202e\u0007 \U0001f600"}, said
    assert said["attestation_id"].startswith("att_"), said
    row = person("calls", "show", said["call_id"])
    assert row["principal"] == "agent:claude" and row["state"] == "completed", row
    assert row["facts"]["channel"] == "mcp", row["facts"]
    return row["facts"]["session"]


async def mistakes_are_explained(client):
    result = await client.call_tool("palyra_echo", {"massage": "x"})
    assert result.is_error and result.structured_content["code"], result
    assert "next step" in text_of(result)
    try:
        await client.call_tool("palyra_no_such_tool", {})
    except MCPError as error:
        assert error.error.code == -32602, error.error
    else:
        raise AssertionError("an unknown tool was called")


async def a_person_says_yes(client):
    heard = []

    async def progress(done, total, message):
        heard.append((done, message))

    call = {"argv": ["sh", "-c", "echo made; exit 3"]}
    task = asyncio.create_task(
        client.call_tool("palyra_process_run", call, progress_callback=progress)
    )
    asked = (await waiting())["approval_id"]
    person("approvals", "decide", asked, "--decision", "allow")
    result = await task
    said = result.structured_content
    assert said["decision"] == "permitted" and said["exit_code"] == 3, said
    assert result.is_error and "made" in text_of(result) and "[exit code 3]" in text_of(result)
    assert said["approval_id"] == asked, said
    assert any(asked in message for _, message in heard), heard


async def a_person_says_no(client):
    task = asyncio.create_task(client.call_tool("palyra_process_run", {"argv": ["true", MODE]}))
    asked = (await waiting())["approval_id"]
    person("approvals", "decide", asked, "--decision", "deny")
    result = await task
    said = result.structured_content
    assert result.is_error and said["decision"] == "denied", said
    assert said["outcome"] == "approval_denied" and said["next_step"], said
    for hint in ("palyra approvals", "decide", "--decision"):
        assert hint not in json.dumps(said) + text_of(result), said


async def nobody_answers_in_time(client):
    call = {"argv": ["sh", "-c", "echo late " + MODE]}
    first = (await client.call_tool("palyra_process_run", call)).structured_content
    assert first["decision"] == "pending" and first["code"] == "approval_pending", first
    asked = first["approval_id"]
    assert (await waiting())["approval_id"] == asked
    again = (await client.call_tool("palyra_process_run", call)).structured_content
    assert again["decision"] == "pending" and again["approval_id"] == asked, again
    person("approvals", "decide", asked, "--decision", "allow")
    result = await client.call_tool("palyra_process_run", call)
    assert result.structured_content["exit_code"] == 0, result.structured_content
    assert "late" in text_of(result)
    # Spent: the next one is asked about anew.
    spent = (await client.call_tool("palyra_process_run", call)).structured_content
    assert spent["decision"] == "pending" and spent["approval_id"] != asked, spent
    person("approvals", "decide", spent["approval_id"], "--decision", "deny")


async def a_long_output_is_behind_a_link(client):
    with open("long.txt", "w") as file:
        file.write("0123456789\n" * 20_000)
    result = await client.call_tool("palyra_fs_read", {"path": "long.txt"})
    said = result.structured_content
    assert "output" not in said and len(text_of(result)) < 40_000, len(text_of(result))
    link = result.content[1]
    assert link.type == "resource_link" and str(link.uri) == said["output_resource"], link
    read = await client.read_resource(said["output_resource"])
    assert read.contents[0].text == "0123456789\n" * 20_000
    try:
        await client.read_resource("palyra://calls/call_none/output")
    except MCPError:
        pass
    else:
        raise AssertionError("an output was read that is not there")


async def a_cancelled_call_is_killed(client):
    call = {"argv": ["sh", "-c", "echo $$ > pid; exec sleep 600"]}
    task = asyncio.create_task(client.call_tool("palyra_process_run", call))
    asked = (await waiting())["approval_id"]
    person("approvals", "decide", asked, "--decision", "allow")
    for _ in range(600):
        running = [row for row in person("calls", "list", "--state", "admitted")["items"]]
        if running:
            break
        await asyncio.sleep(0.05)
    task.cancel()
    for _ in range(600):
        row = person("calls", "show", running[0]["call_id"])
        if row["state"] == "cancelled":
            return
        await asyncio.sleep(0.05)
    raise AssertionError(row)


async def the_list_changes(client, changed):
    person("postures", "set", "palyra.echo", "disabled")
    await asyncio.wait_for(changed.wait(), 30)
    changed.clear()
    names = [tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools]
    assert "palyra_echo" not in names, names
    person("postures", "set", "palyra.echo", "always-allow")
    await asyncio.wait_for(changed.wait(), 30)
    names = [tool.name for tool in (await client.list_tools(cache_mode="refresh")).tools]
    assert "palyra_echo" in names, names


async def main():
    changed = asyncio.Event()

    async def message(message):
        if "ToolListChanged" in type(message).__name__:
            changed.set()

    async with Client(server(), mode=MODE, message_handler=message) as client:
        version = client.session.protocol_version
        assert version == ("2025-11-25" if MODE == "legacy" else MODE), version
        assert client.session.server_info is None or client.session.server_info.name == "palyra"
        await lists(client)
        session = await runs_what_needs_nobody(client)
        await mistakes_are_explained(client)
        await a_person_says_yes(client)
        await a_person_says_no(client)
        await a_long_output_is_behind_a_link(client)
        await a_cancelled_call_is_killed(client)
        if MODE == "legacy":
            await the_list_changes(client, changed)
        else:
            async with client.listen(tools_list_changed=True) as subscription:

                async def hear():
                    async for _ in subscription:
                        changed.set()

                hearing = asyncio.create_task(hear())
                await the_list_changes(client, changed)
                hearing.cancel()
    async with Client(server("--patience", "300ms"), mode=MODE) as client:
        other = await runs_what_needs_nobody(client)
        assert other != session, "each connection is a session of its own"
        await nobody_answers_in_time(client)
    print("all of it holds")


asyncio.run(main())
