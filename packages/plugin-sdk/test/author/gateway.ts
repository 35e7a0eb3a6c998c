import {
  createGatewayOnEdgeRuntime,
  createGatewayOnNodeRuntime,
  createSperaxChatPluginGateway,
  createSperaxPluginGateway,
} from "@sperax/chat-plugins-gateway";

const handler = createSperaxChatPluginGateway();

export { handler as GET, handler as POST };

export const edge = [createGatewayOnEdgeRuntime(), createSperaxPluginGateway({ token: "t" })];

export const api = createGatewayOnNodeRuntime();
