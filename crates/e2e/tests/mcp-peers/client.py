"""Lists and calls a tool with the official Python SDK: URL, TOKEN and MODE (legacy or auto) are its arguments."""

import asyncio
import json
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client


async def main(url: str, token: str, mode: str) -> None:
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, trust_env=False)
    async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
        tools = await client.list_tools()
        result = await client.call_tool("notes_search", {"query": "python"})
        print(json.dumps({"tools": [tool.name for tool in tools.tools], "result": result.structured_content}))


asyncio.run(main(*sys.argv[1:]))
