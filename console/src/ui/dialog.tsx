import { type ReactNode, useEffect, useId, useRef } from "react";

/**
 * A question that has to be answered before anything else. Escape is a no. The keyboard begins at what is marked with `data-first`, which
 * in a question that nobody asked for is its no: whoever was typing does not say yes by it.
 */
export function Dialog({ title, onNo, children }: { title: string; onNo: () => void; children: ReactNode }) {
  const id = useId();
  const box = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const dialog = box.current;
    const before = document.activeElement;
    dialog?.showModal();
    dialog?.querySelector<HTMLElement>("[data-first], [data-first] input")?.focus();
    return () => {
      dialog?.close();
      if (before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return (
    <dialog
      ref={box}
      className="dialog"
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault();
        onNo();
      }}
    >
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}
