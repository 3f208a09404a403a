// Describes violations: the rule, the events that contradict each other, and the seed.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { History, HistoryEvent } from './history.ts';
import { check } from './rules.ts';

const MOST_SHOWN = 20;
/** Per event, because a list may be long. */
const MOST_CHARACTERS = 2_000;
/** Git ignores it. */
const FOLDER = join(import.meta.dirname, '../../node_modules/.cache/histories');

/** Prints a summary. If the history breaks a rule, also writes it to a file. @returns a text for each violation */
export function describeViolations(history: History): string[] {
  const { events, name, seed } = history;
  const violations = check(history);
  const counts = Object.entries(Object.groupBy(events, nameEvent)).map(
    ([kind, each]) => `${each?.length} ${kind}`,
  );
  console.log(`history: SEED=${seed}, ${counts.sort().join(', ')}`);
  if (violations.length > 0 || process.env['KEEP_HISTORY']) {
    mkdirSync(FOLDER, { recursive: true });
    const file = join(FOLDER, `${name}.ndjson`);
    const lines = [{ ...history, events: events.length }, ...events];
    writeFileSync(file, lines.map((line) => `${JSON.stringify(line)}\n`).join(''));
    console.log(`${violations.length} violations; the whole history, an event a line: ${file}`);
  }
  return violations
    .slice(0, MOST_SHOWN)
    .map(({ events: contradicting, rule, says }) =>
      [
        `${rule}: ${says} (SEED=${seed})`,
        ...contradicting.map((event) => JSON.stringify(event).slice(0, MOST_CHARACTERS)),
      ].join('\n  '),
    );
}

function nameEvent(event: HistoryEvent): string {
  if (event.kind === 'fault') return event.name;
  if (event.kind !== 'call') return event.kind;
  return `${event.request.do} ${event.answer?.status ?? 'unanswered'}`;
}
