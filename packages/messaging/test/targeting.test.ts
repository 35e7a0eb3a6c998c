// Handles are compared without case and without a leading @.
import { expect, test } from "vitest";
import { isMessageTargetedAt } from "../src/index.js";

test.each(["helper", "@helper", "Helper", "@HELPER", "id-1"])("%s names the participant", (name) => {
  for (const handle of ["helper", "@Helper"]) expect(isMessageTargetedAt({ at: [name] }, "id-1", handle)).toBe(true);
});

test("ids are compared as they are", () => {
  expect(isMessageTargetedAt({ at: ["ID-1"] }, "id-1", "helper")).toBe(false);
  expect(isMessageTargetedAt({ at: ["helper"] }, "id-1")).toBe(false);
  expect(isMessageTargetedAt({ at: [] }, "id-1")).toBe(true);
});
