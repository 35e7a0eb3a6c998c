import { type KeyboardEvent, type ReactNode, useEffect, useId, useLayoutEffect, useRef, useState } from "react";

interface Props<T, Frame> {
  label: string;
  items: readonly T[];
  keyOf: (item: T) => string;
  height: number;
  chosen?: string | undefined;
  onChoose: (item: T) => void;
  /** Made of the rows that are drawn, for what depends on all of them. */
  frame?: (drawn: readonly T[]) => Frame;
  render: (item: T, frame: Frame | undefined) => ReactNode;
  /** Stays above the rows. */
  header?: (frame: Frame | undefined) => ReactNode;
  /** The last rows are in sight. */
  onEnd?: () => void;
}

const SPARE = 6;

/**
 * A list of any length, of which only the rows in sight are drawn. New rows at the top do not move what somebody is reading; whoever
 * is at the top stays there.
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
}: Props<T, Frame>) {
  const id = useId();
  const box = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  const [room, setRoom] = useState(0);
  const [activeKey, setActiveKey] = useState<string | undefined>(chosen);
  const first = Math.max(0, Math.floor(top / height) - SPARE);
  const last = Math.min(items.length, Math.ceil((top + room) / height) + SPARE);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => setRoom(element.clientHeight - headHeight(element));
    measure();
    const watcher = new ResizeObserver(measure);
    watcher.observe(element);
    return () => watcher.disconnect();
  }, []);

  // The row that was first in sight stays where it is when others come before it.
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
    const y = index * height;
    if (y < element.scrollTop) element.scrollTop = y;
    else if (y + height > element.scrollTop + room) element.scrollTop = y + height - room;
  };
  const key = (event: KeyboardEvent) => {
    const page = Math.max(1, Math.floor(room / height) - 1);
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
      onFocus={() => active < 0 && items.length > 0 && show(Math.ceil(top / height))}
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

function headHeight(list: HTMLElement): number {
  return list.querySelector<HTMLElement>(".list-head")?.offsetHeight ?? 0;
}
