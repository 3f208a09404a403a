// Pages of a list behind cursors.
import { useState } from 'preact/hooks';

/** Cursors of the pages up to the one that is shown; the first has none. */
export function usePages() {
  const [cursors, setCursors] = useState<readonly (string | undefined)[]>([undefined]);
  return { cursors, setCursors, cursor: cursors.at(-1) };
}

interface PagerProps {
  pages: ReturnType<typeof usePages>;
  /** Cursor of the next page; undefined on the last one. */
  next: string | undefined;
}

/** Renders nothing if the list has only one page. */
export function Pager({ next, pages: { cursors, setCursors } }: PagerProps) {
  if (cursors.length === 1 && next === undefined) return null;
  return (
    <div class="pager">
      <button
        type="button"
        disabled={cursors.length === 1}
        onClick={() => setCursors(cursors.slice(0, -1))}
      >
        Newer
      </button>
      <span class="muted">Page {cursors.length}</span>
      <button
        type="button"
        disabled={next === undefined}
        onClick={() => next !== undefined && setCursors([...cursors, next])}
      >
        Older
      </button>
    </div>
  );
}
