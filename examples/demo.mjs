// All three examples in one process, for `cargo xtask up`: prints the address of each, then `ready`. It ends when its
// stdin closes, so it never outlives its parent process, even if that is killed.

process.stdin.once("end", () => process.exit(0));
process.stdin.once("error", () => process.exit(0));
process.stdin.resume();

for (const name of ["checklist", "sun-times", "world-clock"]) await import(`./${name}/server.mjs`);
console.log("ready");
