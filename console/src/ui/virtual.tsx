import {
  type FocusEvent,
  type KeyboardEvent,
  type ReactNode,
  type Ref,
  useEffect,
  useId,
  useImperativeHandle,
  useLayoutEffect,
  useRef,
  useState,
} from "react";

export interface ListKeys {
  /** Handles a key of a search field above the list. */
  fromSearch: (event: KeyboardEvent) => void;
}

/** The effect of a key in a search field: the first row is opened or focused. */
export function searchKey(key: string, isComposing: boolean): "open" | "focus" | undefined {
  // Enter also confirms the word that an input method suggests.
  if (isComposing) return undefined;
  if (key === "Enter") return "open";
  return key === "ArrowDown" ? "focus" : undefined;
}

interface Props<T, Frame> {
  label: string;
  items: readonly T[];
  keyOf: (item: T) => string;
  height: number;
  chosen?: string | undefined;
  onChoose: (item: T) => void;
  /** Computed from the rendered rows, for values that depend on all of them. */
  frame?: (drawn: readonly T[]) => Frame;
  render: (item: T, frame: Frame | undefined) => ReactNode;
  /** Stays above the rows. */
  header?: (frame: Frame | undefined) => ReactNode;
  /** Called when the last rows are visible. */
  onEnd?: () => void;
  /** Gives access to the list's keyboard handling, for a search field above it. */
  keys?: Ref<ListKeys>;
}

const SPARE = 6;

/**
 * A list of any length that renders only the visible rows. New rows at the top do not move the rows of a reader; a
 * reader at the top stays there.
 */
export function VirtualList<T, Frame = undefined>({
  label,
  items,
  keyOf,
  height,
  chosen,
  onChoose,
  render,
  onEnd,
  frame,
  header,
  keys,
}: Props<T, Frame>) {
  const id = useId();
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [viewport, setViewport] = useState(0);
  const [activeKey, setActiveKey] = useState<string | undefined>(chosen);
  const [known, setKnown] = useState(chosen);
  if (known !== chosen) {
    // Chosen elsewhere, such as by the address: the keyboard continues from there, and no other row is marked.
    setKnown(chosen);
    setActiveKey(chosen);
  }
  const first = Math.max(0, Math.floor(top / height) - SPARE);
  const last = Math.min(items.length, Math.ceil((top + viewport) / height) + SPARE);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => setViewport(element.clientHeight - headHeight(element));
    measure();
    const watcher = new ResizeObserver(measure);
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);

  // The first visible row keeps its position when rows are added before it.
  const anchor = useRef<string>(undefined);
  useLayoutEffect(() => {
    const element = box.current;
    if (element && anchor.current !== undefined && element.scrollTop > 0) {
      const was = Math.floor(element.scrollTop / height);
      const found = items[was];
      if (found === undefined || keyOf(found) !== anchor.current) {
        const now = items.findIndex((item) => keyOf(item) === anchor.current);
        if (now > was) element.scrollTop += (now - was) * height;
      }
    }
  }, [items, height, keyOf]);
  useLayoutEffect(() => {
    const item = items[Math.floor(top / height)];
    anchor.current = item === undefined ? undefined : keyOf(item);
  });

  useEffect(() => {
    if (items.length > 0 && last >= items.length) onEnd?.();
  }, [last, items.length, onEnd]);

  const active = items.findIndex((item) => keyOf(item) === (activeKey ?? chosen));
  const show = (index: number) => {
    const element = box.current;
    const item = items[index];
    if (!element || item === undefined) return;
    setActiveKey(keyOf(item));
    reveal(element, index * height, height, viewport);
  };
  // The chosen row is scrolled into view when the list first contains it; after that, the user scrolls.
  const revealed = useRef<string>(undefined);
  useLayoutEffect(() => {
    if (revealed.current === chosen || viewport === 0 || items.length === 0) return;
    revealed.current = chosen;
    const at = items.findIndex((item) => keyOf(item) === chosen);
    if (box.current && at >= 0) reveal(box.current, at * height, height, viewport);
  }, [chosen, items, keyOf, height, viewport]);
  const key = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(viewport / height) - 1);
    const target = {
      ArrowDown: active + 1,
      ArrowUp: active - 1,
      PageDown: active + page,
      PageUp: active - page,
      Home: 0,
      End: items.length - 1,
    }[event.key];
    if (target !== undefined) show(Math.min(items.length - 1, Math.max(0, target)));
    else if ((event.key === "Enter" || event.key === " ") && items[active] !== undefined) onChoose(items[active] as T);
    else return;
    event.preventDefault();
  };
  useImperativeHandle(keys, () => ({
    fromSearch: (event) => {
      const effect = searchKey(event.key, event.nativeEvent.isComposing);
      const [item] = items;
      if (effect === undefined || item === undefined) return;
      event.preventDefault();
      show(0);
      if (effect === "open") onChoose(item);
      else box.current?.focus();
    },
  }));
  const focus = ({ currentTarget: element }: FocusEvent<HTMLElement>) => {
    // A mouse press also focuses the list, and would hit another row if the list moved at that moment.
    if (active < 0 && element.matches(":focus-visible")) show(Math.ceil(element.scrollTop / height));
  };
  const drawn = items.slice(first, last);
  const shared = frame?.(drawn);
  return (
    <div
      ref={box}
      className="virtual"
      role="listbox"
      aria-label={label}
      tabIndex={0}
      aria-activedescendant={active >= first && active < last ? `${id}${active}` : undefined}
      onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      onKeyDown={key}
      onFocus={focus}
    >
      {header && (
        <div className="list-head" aria-hidden="true">
          {header(shared)}
        </div>
      )}
      <div className="rows" style={{ height: items.length * height }} role="presentation">
        {drawn.map((item, at) => {
          const index = first + at;
          const itemKey = keyOf(item);
          return (
            <div
              key={itemKey}
              id={`${id}${index}`}
              role="option"
              className="item"
              aria-selected={itemKey === chosen || index === active}
              aria-posinset={index + 1}
              aria-setsize={items.length}
              style={{ top: index * height, height }}
              onClick={() => {
                setActiveKey(itemKey);
                onChoose(item);
              }}
            >
              {render(item, shared)}
            </div>
          );
        })}
      </div>
    </div>
  );
}

/** Scrolls only as far as needed to show a row. */
function reveal(list: HTMLElement, y: number, height: number, viewport: number): void {
  if (y < list.scrollTop) list.scrollTop = y;
  else if (y + height > list.scrollTop + viewport) list.scrollTop = y + height - viewport;
}

function headHeight(list: HTMLElement): number {
  return list.querySelector<HTMLElement>(".list-head")?.offsetHeight ?? 0;
}
