// A process that checks a database and its files of payloads (see store-files.ts). Prints each problem as a JSON string on
// one line, or an object with the reason if it cannot check the file.
import { DatabaseSync } from 'node:sqlite';
import { findLostParts, locatePayloads, PayloadFolder } from './payload-files.ts';
import { isDamage, nameStorageFailure } from './store-failures.ts';

const MAX_PROBLEMS = 100;

function report(found: string | { failure: string }): void {
  process.stdout.write(`${JSON.stringify(found)}\n`);
}

function check(path: string, pragma: string): void {
  const database = new DatabaseSync(path, { readOnly: true, timeout: 5_000 });
  try {
    for (const row of database.prepare(`pragma ${pragma}(${MAX_PROBLEMS})`).iterate()) {
      const [text] = Object.values(row);
      // SQLite describes a damaged tree in one text of several lines.
      for (const line of String(text).split('\n')) if (line !== 'ok' && line !== '') report(line);
    }
    const files = new PayloadFolder({ folder: locatePayloads(path) });
    for (const line of findLostParts(database, files).slice(0, MAX_PROBLEMS)) report(line);
  } finally {
    database.close();
  }
}

const [path = '', depth] = process.argv.slice(2);
try {
  check(path, depth === 'full' ? 'integrity_check' : 'quick_check');
} catch (error) {
  const code = nameStorageFailure(error) ?? 'error';
  const text = `${code}: ${error instanceof Error ? error.message : String(error)}`;
  // A file that is locked or cannot be opened is not damaged.
  report(isDamage(code) || code.startsWith('SQLITE_IOERR') ? text : { failure: text });
}
