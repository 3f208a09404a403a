// Path aliases of tsconfig.json files that are made to cost a lot.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { readAliasRules } from '../../../src/base/alias-rules.ts';

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-alias-rules-'));
});

afterEach(() => rmSync(folder, { recursive: true, force: true }));

const write = (name: string, text: string) => writeFileSync(join(folder, name), text);

it('keeps comments and commas within strings, and removes others', () => {
  write(
    'tsconfig.json',
    '{ // one\n "compilerOptions": { /* "two" */ "paths": { "a//b\\",]": ["./x/*y*/",], }, }, }',
  );

  expect(readAliasRules(folder)?.paths).toEqual({ 'a//b",]': [join(folder, 'x/*y*')] });
});

it('reads files that extend each other many times 64 times at most', () => {
  const names = Array.from({ length: 3 }, (_, n) => `./base-${n}.json`);
  write('tsconfig.json', JSON.stringify({ extends: names, compilerOptions: { baseUrl: '.' } }));
  for (const name of names) write(name, JSON.stringify({ extends: names }));

  expect(readAliasRules(folder)?.files).toHaveLength(64);
});

it('leaves out files beyond 1 MiB together', () => {
  const names = ['./first.json', './second.json'];
  write('tsconfig.json', JSON.stringify({ extends: names, compilerOptions: { baseUrl: '.' } }));
  for (const name of names) write(name, `{}${' '.repeat(600_000)}`);

  const files = [join(folder, 'tsconfig.json'), join(folder, 'first.json')];
  expect(readAliasRules(folder)?.files).toEqual(files);
});

it.each([
  ['comments without an end', '/* '],
  ['strings without an end', '\\"'],
  ['commas', ', '],
])('does not hold the thread with a text of 1 MB of %s', async (_name, piece) => {
  write(
    'tsconfig.json',
    `"${piece === '\\"' ? '' : '"'}${piece.repeat(1_000_000 / piece.length)}\\`,
  );
  const source = new URL('../../../src/base/alias-rules.ts', import.meta.url).href;
  const code = `import(${JSON.stringify(source)}).then(({ readAliasRules }) => readAliasRules(${JSON.stringify(folder)}))`;
  const worker = new Worker(code, { eval: true });
  // A guard: the quadratic form takes minutes, the linear one some 10 ms.
  const guard = setTimeout(() => void worker.terminate(), 20_000);

  const exitCode = await new Promise((resolve) => worker.once('exit', resolve));

  clearTimeout(guard);
  expect(exitCode).toBe(0);
});
