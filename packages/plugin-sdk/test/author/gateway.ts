import { createGatewayOnNodeRuntime, createSperaxChatPluginGateway } from "@sperax/chat-plugins-gateway";

const handler = createSperaxChatPluginGateway();

export { handler as GET, handler as POST };

export const api = createGatewayOnNodeRuntime();
