"""A conversation with OpenAI's Python client: URL, TOKEN and MODE (whole or stream) are its arguments."""

import json
import sys

import openai

TOOLS = [{"type": "function", "function": {"name": "get_time", "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}}}]


def ask(client: openai.OpenAI, messages: list, mode: str):
    """The answer's text, and its calls."""
    if mode == "whole":
        message = client.chat.completions.create(model="scripted", messages=messages, tools=TOOLS).choices[0].message
        return message.content, message.tool_calls or []
    options = {"include_usage": True}
    with client.chat.completions.stream(model="scripted", messages=messages, tools=TOOLS, stream_options=options) as stream:
        for _ in stream:
            pass
        completion = stream.get_final_completion()
    assert completion.usage.total_tokens > 0, completion
    message = completion.choices[0].message
    return message.content, message.tool_calls or []


def main(url: str, token: str, mode: str) -> None:
    client = openai.OpenAI(base_url=url, api_key=token, max_retries=0)
    messages = [{"role": "user", "content": "What time is it?"}]
    _, calls = ask(client, messages, mode)
    functions = [{"name": call.function.name, "arguments": call.function.arguments} for call in calls]
    asked = [{"id": call.id, "type": "function", "function": function} for call, function in zip(calls, functions)]
    messages.append({"role": "assistant", "content": None, "tool_calls": asked})
    messages += [{"role": "tool", "tool_call_id": call.id, "content": "12:00"} for call in calls]
    answer, _ = ask(client, messages, mode)
    try:
        client.chat.completions.create(model="other", messages=messages)
        error = None
    except openai.NotFoundError as failure:
        error = [failure.status_code, failure.code]
    models = [model.id for model in client.models.list()]
    print(json.dumps({"models": models, "calls": functions, "answer": answer, "error": error}))


main(*sys.argv[1:])
