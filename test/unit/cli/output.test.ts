// What the output of commands looks like.
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, it } from 'vitest';
import { formatTable, showOwnStack } from '../../../src/cli/output.ts';

const folder = resolve(import.meta.dirname, '../../../src/cli');
/** Both escape what others wrote, and add colours. */
const writers = ['output.ts', 'terminal-log.ts'];

it('lets no command write directly to standard output or error', () => {
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

it('makes each column as wide as its widest cell, and marks empty cells', () => {
  expect(
    formatTable(
      ['ID', 'NAME', 'WHY'],
      [
        ['1', 'a long one', 'x'],
        ['22', 'b', ''],
      ],
    ),
  ).toBe(['ID  NAME        WHY', '1   a long one  x', '22  b           -'].join('\n'));
});

it('keeps a row on one line', () => {
  expect(formatTable(['A', 'B'], [['two\nlines', 'b']])).toBe('A          B\ntwo lines  b');
});

it('counts characters, not code units', () => {
  expect(
    formatTable(
      ['A', 'B'],
      [
        ['😀', 'b'],
        ['xy', 'b'],
      ],
    ),
  ).toBe('A   B\n😀   b\nxy  b');
});

it('escapes control characters and counts the escaped width', () => {
  expect(formatTable(['A', 'B'], [['\u001b[2J', 'b\u202e']])).toBe(
    ['A          B', '\\u001b[2J  b\\u202e'].join('\n'),
  );
});

const WIDE = [
  ['ep_1', 'a name of some length', 'why it is so, at length'],
  ['ep_2', 'short', 'none'],
];

it('cuts the widest columns until the table fits', () => {
  expect(formatTable(['ID', 'NAME', 'REASON'], WIDE, 30)).toBe(
    ['ID    NAME         REASON', 'ep_1  a name of …  why it is …', 'ep_2  short        none'].join(
      '\n',
    ),
  );
});

it('never cuts the ID or below a title', () => {
  const titles = ['THE LONGEST ID', 'A TITLE', 'B'];
  const [head, row] = formatTable(
    titles,
    [['x'.repeat(30), 'y'.repeat(30), 'z'.repeat(30)]],
    10,
  ).split('\n');
  expect(head).toBe(`${'THE LONGEST ID'.padEnd(30)}  A TITLE  B`);
  expect(row).toBe(`${'x'.repeat(30)}  yyyyyy…  zzzzz…`);
});

const view = {
  folder: '/home/me/project',
  packageUrl: 'file:///home/me/project/node_modules/millrace/',
};

it('shows the frames of the handler and its packages, with paths from the folder', () => {
  const stack = `TypeError: no file:///home/me/x
    at deep (file:///home/me/project/handlers/a%20b.ts:3:41)
    at async load (file:///home/me/project/node_modules/model/index.js:7:1)
    at file:///opt/shared/lib.js:1:2
    at default.next (<anonymous>)
    at #drive (file:///home/me/project/node_modules/millrace/dist/chunks/bind.js:1:2)
    at process.processTicksAndRejections (node:internal/process/task_queues:105:5)
    at node:internal/main/worker_thread:214:26
caused by: Error: two
lines
    at Array.map (<anonymous>)
    at async #run (file:///home/me/project/node_modules/millrace/src/x.ts:9:13)`;
  expect(showOwnStack(stack, view)).toBe(`TypeError: no file:///home/me/x
    at deep (handlers/a b.ts:3:41)
    at async load (node_modules/model/index.js:7:1)
    at /opt/shared/lib.js:1:2
caused by: Error: two
lines
    at Array.map (<anonymous>)`);
});

it('leaves text without frames as it is', () => {
  expect(showOwnStack('no stack, at all', view)).toBe('no stack, at all');
  for (const place of ['file://host/x:1:2', 'file:///a%2Fb:1:2', 'x:1:2']) {
    expect(showOwnStack(`    at x (${place})`, view)).toBe(`    at x (${place})`);
  }
});
