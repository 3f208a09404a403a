// Everything that commands print goes through one module, which escapes control characters.
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, it } from 'vitest';

const folder = resolve(import.meta.dirname, '../../../src/cli');
/** Both escape what others wrote, and add colours. */
const writers = ['output.ts', 'terminal-log.ts'];

it('no command writes directly to standard output or error', () => {
  const files = readdirSync(folder).filter((name) => name.endsWith('.ts'));
  const found = files
    .filter((name) => !writers.includes(name))
    .filter((name) =>
      /process\.std(out|err)\.write|console\.(log|error|info|warn)\(/.test(
        readFileSync(join(folder, name), 'utf8'),
      ),
    );
  expect(found).toEqual([]);
});
