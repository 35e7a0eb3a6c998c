// Programs that a script starts, and that end with it.
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";

const started = [];

/** Starts a program and waits for an output line that begins with this text; returns the rest of that line. */
export function start(program, args, beginning) {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, RUST_LOG: "error" } });
  started.push(child);
  let said = "";
  child.stderr.on("data", (text) => {
    said += text;
  });
  return new Promise((found, failed) => {
    child.on("exit", () => failed(new Error(`${program} ${args.join(" ")} ended early: ${said}`)));
    createInterface({ input: child.stdout }).on(
      "line",
      (line) => line.startsWith(beginning) && found(line.slice(beginning.length)),
    );
  });
}

/** Ends the program that was started last. */
export async function endLast() {
  const child = started.pop();
  if (!child || child.exitCode !== null) return;
  const ended = new Promise((done) => child.once("exit", done));
  child.kill();
  await ended;
}

/** Ends all of them, the last one first. */
export async function endAll() {
  while (started.length > 0) await endLast();
}
