// The keyboard leads from the search field into the list of tools.
import { act, useRef } from "react";
import { createRoot, type Root } from "react-dom/client";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { type ListKeys, VirtualList } from "../src/ui/virtual";

const chosen = vi.fn();
let root: Root;

function Page({ items }: { items: string[] }) {
  const list = useRef<ListKeys>(null);
  return (
    <>
      <input type="search" onKeyDown={(event) => list.current?.fromSearch(event)} />
      <VirtualList
        label="Tools"
        keys={list}
        items={items}
        keyOf={(item) => item}
        height={50}
        onChoose={chosen}
        render={(item) => item}
      />
    </>
  );
}

async function show(items: string[]) {
  await act(async () => root.render(<Page items={items} />));
}

async function press(target: string, key: string, more: KeyboardEventInit = {}) {
  const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true, ...more });
  await act(async () => document.querySelector(target)?.dispatchEvent(event));
  return event.defaultPrevented;
}

beforeEach(() => {
  Object.assign(globalThis, { IS_REACT_ACT_ENVIRONMENT: true });
  document.body.innerHTML = "<div id=root></div>";
  root = createRoot(document.querySelector("#root") as Element);
  chosen.mockClear();
});
afterEach(async () => {
  await act(async () => root.unmount());
});

test("Enter opens the first match", async () => {
  await show(["a", "b"]);
  expect(await press("input", "Enter")).toBe(true);
  expect(chosen).toHaveBeenCalledExactlyOnceWith("a");
});

test("the arrow moves to the list, where the keys go on", async () => {
  await show(["a", "b"]);
  await press("input", "ArrowDown");
  expect(document.activeElement?.getAttribute("role")).toBe("listbox");
  await press("[role=listbox]", "ArrowDown");
  await press("[role=listbox]", "Enter");
  expect(chosen).toHaveBeenCalledExactlyOnceWith("b");
});

test("other keys, and keys of an input method, stay in the field", async () => {
  await show(["a"]);
  expect(await press("input", "b")).toBe(false);
  expect(await press("input", "Enter", { isComposing: true })).toBe(false);
  await show([]);
  expect(await press("input", "Enter")).toBe(false);
  expect(chosen).not.toHaveBeenCalled();
});
