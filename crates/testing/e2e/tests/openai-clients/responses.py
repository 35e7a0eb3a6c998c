"""A conversation over the Responses API with OpenAI's Python client.

URL, TOKEN, MODE (whole or stream) and BARRED, a token that may not use it, are its arguments.
"""

import json
import sys

import openai
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

SETTINGS = {
    "model": "scripted",
    "instructions": "Be short.",
    "max_output_tokens": 500,
    "store": False,
    "tools": [{"type": "function", "name": "get_time", "strict": False, "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}}],
}
EVENT = TypeAdapter(ResponseStreamEvent)


def ask(client: openai.OpenAI, items: list, mode: str) -> Response:
    """The response, which has every field that the client's own types require."""
    if mode == "whole":
        raw = client.responses.with_raw_response.create(input=items, **SETTINGS)
        return Response.model_validate_json(raw.text)
    for event in client.responses.create(input=items, stream=True, **SETTINGS) if len(items) == 1 else []:
        EVENT.validate_python(event.to_dict())
    text = ""
    with client.responses.stream(input=items, **SETTINGS) as stream:
        for event in stream:
            if event.type == "response.output_text.delta":
                text += event.delta
        response = stream.get_final_response()
    assert text == response.output_text, (text, response)
    return response


def failure(request) -> list:
    try:
        request()
    except openai.APIStatusError as error:
        return [error.status_code, error.code, error.param, bool(error.body["message"])]
    return []


def main(url: str, token: str, mode: str, barred: str) -> None:
    client = openai.OpenAI(base_url=url, api_key=token, max_retries=0)
    items = [{"role": "user", "content": "What time is it?"}]
    first = ask(client, items, mode)
    assert first.usage.total_tokens > 0, first
    calls = [item for item in first.output if item.type == "function_call"]
    items += first.output
    items += [{"type": "function_call_output", "call_id": call.call_id, "output": "12:00"} for call in calls]
    second = ask(client, items, mode)
    assert (second.status, second.instructions) == ("completed", "Be short."), second
    stranger = openai.OpenAI(base_url=url, api_key="wrong", max_retries=0)
    errors = [
        failure(lambda: client.responses.create(model="other", input="x")),
        failure(lambda: client.responses.create(model="scripted", input="x", previous_response_id="resp_1")),
        failure(lambda: client.responses.retrieve("resp_1")),
        failure(lambda: stranger.responses.create(model="scripted", input="x")),
        failure(lambda: client.with_options(api_key=barred).responses.create(model="scripted", input="x")),
    ]
    functions = [{"name": call.name, "arguments": call.arguments} for call in calls]
    print(json.dumps({"text": first.output_text, "calls": functions, "answer": second.output_text, "errors": errors}))


main(*sys.argv[1:])
