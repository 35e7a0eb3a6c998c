import { type ReactNode, useEffect, useId, useRef } from "react";

/**
 * A modal dialog. Escape means "no". The focus starts on the element with `data-first`. In a question that the user did
 * not request, that is its "no", so that typing does not accept it.
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
