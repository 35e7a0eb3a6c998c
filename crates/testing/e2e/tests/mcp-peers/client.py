"""Lists and calls tools with the official Python SDK, major version 2.

URL, TOKEN, MODE (legacy or auto) and CALLS are its arguments, the last a JSON array of tools' names with their arguments.
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
        # From here on the client checks structured content against the schemas of the list.
        tools = await client.list_tools()
        results = []
        for name, arguments in json.loads(calls):
            result = await client.call_tool(name, arguments)
            results.append(
                {
                    "types": [block.type for block in result.content],
                    "structured": result.structured_content,
                    "error": result.is_error,
                    "meta": result.meta,
                }
            )
        print(json.dumps({"tools": [tool.name for tool in tools.tools], "results": results}))


asyncio.run(main(*sys.argv[1:]))
