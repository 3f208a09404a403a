// Times and durations: short for reading, exact in the title.
import { useEffect, useRef, useState } from 'preact/hooks';

const EXACT = new Intl.DateTimeFormat(undefined, {
  dateStyle: 'medium',
  timeStyle: 'long',
});
const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
});
const DAY = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric' });

const REDRAW_EVERY_MS = 5_000;
const COUNT_EVERY_MS = 250;
const DAY_MS = 86_400_000;

/** `at`: Unix ms or ISO 8601. `ago`: "12 s ago"; `clock`: the time of day in the user's zone. */
export function Time({ as = 'ago', at }: { at: number | string; as?: 'ago' | 'clock' }) {
  const date = new Date(at);
  const now = useNow(as === 'ago' ? REDRAW_EVERY_MS : null);
  const text = as === 'ago' ? sayAgo(now - date.getTime()) : sayClock(date, now);
  return (
    <time dateTime={date.toISOString()} title={EXACT.format(date)}>
      {text}
    </time>
  );
}

/** A duration that keeps growing after the platform reported it. */
export function Elapsed({ isRunning, ms }: { ms: number; isRunning: boolean }) {
  const said = useRef({ ms, at: Date.now() });
  if (said.current.ms !== ms) said.current = { ms, at: Date.now() };
  const now = useNow(isRunning ? COUNT_EVERY_MS : null);
  return <>{sayDuration(isRunning ? ms + now - said.current.at : ms)}</>;
}

/** Renders again every `everyMs`; null: never. */
function useNow(everyMs: number | null): number {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (everyMs === null) return;
    const timer = setInterval(() => setNow(Date.now()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return Math.max(now, Date.now());
}

function sayClock(date: Date, now: number): string {
  const clock = CLOCK.format(date);
  return Math.abs(now - date.getTime()) < DAY_MS ? clock : `${DAY.format(date)}, ${clock}`;
}

function sayAgo(ms: number): string {
  if (ms < -1_000) return `in ${sayDuration(-ms)}`;
  return ms < 1_000 ? 'now' : `${sayDuration(ms)} ago`;
}

const ONE_DIGIT = { minimumFractionDigits: 1, maximumFractionDigits: 1 };

/** Two significant parts: `840 ms`, `12.3 s`, `4 min 10 s`, `3 h 5 min`, `2 d 4 h`. */
export function sayDuration(ms: number): string {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1_000;
  if (seconds < 10) return `${seconds.toLocaleString(undefined, ONE_DIGIT)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const parts: [number, string][] = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3_600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'min'],
    [Math.floor(seconds) % 60, 's'],
  ];
  const first = parts.findIndex(([count]) => count > 0);
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count > 0)
    .map(([count, unit]) => `${count} ${unit}`)
    .join(' ');
}
