// A log that grows: it stays at its end unless the reader pauses it.
import type { ComponentChildren } from 'preact';
import { useEffect, useRef } from 'preact/hooks';

interface LogFrameProps {
  label: string;
  isPaused: boolean;
  onPause: (isPaused: boolean) => void;
  /** Nothing follows. */
  isOver: boolean;
  children: ComponentChildren;
}

export function LogFrame({ children, isOver, isPaused, label, onPause }: LogFrameProps) {
  const frame = useRef<HTMLElement>(null);
  useEffect(() => {
    if (!isPaused && frame.current) frame.current.scrollTop = frame.current.scrollHeight;
  });
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: the keyboard scrolls it. */}
      <section ref={frame} class="block-frame log" aria-label={label} tabIndex={0}>
        {children}
      </section>
      <div class="log-foot">
        {isOver ? (
          <p class="muted">End of the log</p>
        ) : (
          <button type="button" aria-pressed={isPaused} onClick={() => onPause(!isPaused)}>
            {isPaused ? 'Follow' : 'Pause'}
          </button>
        )}
      </div>
    </>
  );
}
