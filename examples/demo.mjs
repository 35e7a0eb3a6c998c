// All three examples in one process, for `cargo xtask up`: prints where each is, then `ready`. It ends when its stdin does, and so
// never outlives whoever started it, however that ended.

process.stdin.once("end", () => process.exit(0));
process.stdin.once("error", () => process.exit(0));
process.stdin.resume();

for (const name of ["checklist", "sun-times", "world-clock"]) await import(`./${name}/server.mjs`);
console.log("ready");
