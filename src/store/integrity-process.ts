// A process that checks a database file and prints each problem as a line of JSON; see integrity.ts.
import { DatabaseSync } from 'node:sqlite';
import { nameStorageFailure } from './sqlite-errors.ts';

const MAX_PROBLEMS = 100;

function report(problem: string): void {
  process.stdout.write(`${JSON.stringify(problem)}\n`);
}

function check(path: string, pragma: string): void {
  const database = new DatabaseSync(path, { readOnly: true, timeout: 5_000 });
  try {
    for (const row of database.prepare(`pragma ${pragma}(${MAX_PROBLEMS})`).iterate()) {
      const [text] = Object.values(row);
      // A damaged tree comes as one text of several lines.
      for (const line of String(text).split('\n')) if (line !== 'ok' && line !== '') report(line);
    }
  } finally {
    database.close();
  }
}

const [path = '', depth] = process.argv.slice(2);
try {
  check(path, depth === 'full' ? 'integrity_check' : 'quick_check');
} catch (error) {
  const code = nameStorageFailure(error) ?? 'error';
  report(`${code}: ${error instanceof Error ? error.message : String(error)}`);
}
