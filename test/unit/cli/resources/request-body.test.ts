// JSON files as editors write them.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { composeBody, readObjectFile } from '../../../../src/cli/resources/request-body.ts';

it('may begin with a byte order mark, and have U+2028 in its texts', () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-body-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'body.json');
  writeFileSync(file, '\ufeff{"name":"a\u2028b"}\r\n');
  expect(readObjectFile('--file', file)).toEqual({ name: 'a\u2028b' });
  expect(composeBody(file, { size: 1 })).toEqual({ name: 'a\u2028b', size: 1 });
});
