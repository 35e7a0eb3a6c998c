"""Lists and calls tools with the official Python SDK.

URL, TOKEN, MODE (legacy or auto) and CALLS are its arguments, the last as JSON, the names of tools with their arguments.
"""

import asyncio
import json
import sys

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client


async def main(url: str, token: str, mode: str, calls: str) -> None:
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}, trust_env=False)
    async with Client(streamable_http_client(url, http_client=http), mode=mode) as client:
        tools = await client.list_tools()
        results = {}
        for name, arguments in json.loads(calls).items():
            results[name] = (await client.call_tool(name, arguments)).structured_content
        print(json.dumps({"tools": [tool.name for tool in tools.tools], "results": results}))


asyncio.run(main(*sys.argv[1:]))
