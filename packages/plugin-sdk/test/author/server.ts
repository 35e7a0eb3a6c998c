import { createErrorResponse, getPluginSettingsFromRequest, PluginErrorType } from "@sperax/plugin-sdk";

interface MySettings {
  apiKey: string;
  endpoint?: string;
}

interface RequestBody {
  query: string;
}

async function processQuery(query: string, apiKey: string) {
  return { answer: query.toUpperCase(), signedWith: apiKey.length };
}

export default async (req: Request) => {
  if (req.method !== "POST") {
    return createErrorResponse(PluginErrorType.MethodNotAllowed);
  }

  const settings = getPluginSettingsFromRequest<MySettings>(req);
  if (!settings?.apiKey) {
    return createErrorResponse(PluginErrorType.PluginSettingsInvalid, {
      message: "API key required",
    });
  }

  const body = (await req.json()) as RequestBody;
  const result = await processQuery(body.query, settings.apiKey);

  return new Response(JSON.stringify(result), {
    headers: { "Content-Type": "application/json" },
  });
};
