import { useProgram } from "../data/program";
import { Command } from "../ui/parts";

/** Commands to connect something. They work unchanged on this gateway. */
export function NextSteps() {
  const program = useProgram();
  const url = location.origin;
  return (
    <div className="columns">
      <div className="stack tight">
        <h3>A machine’s shell and files</h3>
        <p className="soft">A node offers them to agents as tools.</p>
        <Command text={`${program} node --id laptop --workspace .`} />
      </div>
      <div className="stack tight">
        <h3>An MCP server behind the gateway</h3>
        <p className="soft">Its tools are offered here, under its name.</p>
        <Command text={`${program} upstream add files -- npx -y @modelcontextprotocol/server-filesystem "$HOME"`} />
      </div>
      <div className="stack tight">
        <h3>A plugin, or any HTTP API</h3>
        <p className="soft">By the address of its manifest or its OpenAPI document.</p>
        <Command text={`${program} plugin add https://example.com/manifest.json`} />
      </div>
      <div className="stack tight">
        <h3>An agent that calls the tools</h3>
        <p className="soft">Any MCP client; this one is Claude Code.</p>
        <Command
          text={`claude mcp add --transport http switchboard ${url}/mcp --header "Authorization: Bearer $(${program} token create my-agent)"`}
        />
      </div>
    </div>
  );
}
