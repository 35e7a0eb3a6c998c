/** The errors of a host, the gateway and a plugin's server. The numbers are HTTP statuses. */
export const PluginErrorType = {
  MethodNotAllowed: "MethodNotAllowed",
  PluginGatewayError: "PluginGatewayError",
  PluginServerError: "PluginServerError",
  PluginSettingsInvalid: "PluginSettingsInvalid",
  PluginMarketIndexNotFound: "PluginMarketIndexNotFound",
  PluginMarketIndexInvalid: "PluginMarketIndexInvalid",
  PluginMetaNotFound: "PluginMetaNotFound",
  PluginMetaInvalid: "PluginMetaInvalid",
  PluginManifestNotFound: "PluginManifestNotFound",
  PluginManifestInvalid: "PluginManifestInvalid",
  PluginApiNotFound: "PluginApiNotFound",
  PluginApiParamsError: "PluginApiParamsError",
  PluginOpenApiInitError: "PluginOpenApiInitError",
  BadRequest: 400,
  Unauthorized: 401,
  Forbidden: 403,
  ContentNotFound: 404,
  TooManyRequests: 429,
  InternalServerError: 500,
  BadGateway: 502,
  ServiceUnavailable: 503,
  GatewayTimeout: 504,
} as const;

export type IPluginErrorType = (typeof PluginErrorType)[keyof typeof PluginErrorType];

/** The body of every error. */
export interface ErrorResponse<Body = unknown> {
  body?: Body;
  errorType: string | number;
}

const STATUSES: Readonly<Record<string, number>> = {
  MethodNotAllowed: 405,
  PluginGatewayError: 502,
  PluginServerError: 500,
  PluginSettingsInvalid: 400,
  PluginMarketIndexNotFound: 404,
  PluginMarketIndexInvalid: 490,
  PluginMetaNotFound: 404,
  PluginMetaInvalid: 490,
  PluginManifestNotFound: 404,
  PluginManifestInvalid: 490,
  PluginApiNotFound: 404,
  PluginApiParamsError: 422,
  PluginOpenApiInitError: 500,
};

/** Returns the HTTP status of an error type; 500 for an unknown type. */
export function getPluginErrorStatus(errorType: string | number): number {
  const status =
    typeof errorType === "number" ? errorType : Object.hasOwn(STATUSES, errorType) ? STATUSES[errorType] : 500;
  // With any other value the constructor of a response throws, and hides the original error.
  return status !== undefined && Number.isInteger(status) && status >= 200 && status <= 599 ? status : 500;
}

/** Returns an error in the hosts' format. With `PluginSettingsInvalid` they show the settings. */
export function createErrorResponse(errorType: string | number, body?: unknown): Response {
  const content: ErrorResponse = { body, errorType };
  return new Response(JSON.stringify(content), {
    status: getPluginErrorStatus(errorType),
    headers: { "content-type": "application/json" },
  });
}
