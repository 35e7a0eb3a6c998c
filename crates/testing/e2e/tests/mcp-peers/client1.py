"""Lists and calls tools with the official Python SDK, major version 1.

URL, TOKEN and CALLS are its arguments, the last a JSON array of tools' names with their arguments.
"""

import asyncio
import json
import sys

from mcp import ClientSession
from mcp.client.streamable_http import streamablehttp_client


async def main(url: str, token: str, calls: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    async with streamablehttp_client(url, headers=headers) as (read, write, _), ClientSession(read, write) as session:
        await session.initialize()
        # From here on the client checks structured content against the schemas of the list.
        tools = await session.list_tools()
        results = []
        for name, arguments in json.loads(calls):
            result = await session.call_tool(name, arguments)
            results.append(
                {
                    "types": [block.type for block in result.content],
                    "structured": result.structuredContent,
                    "error": result.isError,
                    "meta": result.meta,
                }
            )
        print(json.dumps({"tools": [tool.name for tool in tools.tools], "results": results}))


asyncio.run(main(*sys.argv[1:]))
