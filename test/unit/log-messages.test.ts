// Compares the list in docs/logs.md with the log messages in src.
import { globSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { expect, it } from 'vitest';

const ROOT = resolve(import.meta.dirname, '../..');
const CALL = /\blog\??\.(trace|debug|info|warn|error|fatal)\(/g;
/** The message is the last argument; a trailing comma may follow it. */
const MESSAGE = /(?:^|, )(?:'([^']*)'|"([^"]*)"|`([^`]*)`),?$/;

interface Message {
  level: string;
  text: string;
}

it('lists only log messages of src, with their level, and each fatal one', () => {
  const logged = findSources().flatMap(collectMessages).map(formatMessage);
  const listed = readListed().map(formatMessage);
  expect(listed.filter((each) => !logged.includes(each)).sort()).toEqual([]);
  const fatal = new Set(logged.filter((each) => each.startsWith('fatal: ')));
  expect([...fatal].filter((each) => !listed.includes(each))).toEqual([]);
  expect(listed).toHaveLength(new Set(listed).size);
  expect(listed.length).toBeGreaterThan(50);
});

/** The template of `millrace init` is the author's program. */
function findSources(): string[] {
  return globSync('src/**/*.ts', { cwd: ROOT, exclude: ['src/cli/commands/init-template/**'] });
}

function collectMessages(path: string): Message[] {
  const source = readFileSync(resolve(ROOT, path), 'utf8');
  return [...source.matchAll(CALL)].flatMap(({ 0: call, 1: level = '', index }) => {
    const [, ...quoted] = MESSAGE.exec(readArguments(source, index + call.length)) ?? [];
    const text = quoted.find((each) => each !== undefined);
    return text === undefined ? [] : [{ level, text: text.replaceAll(/\$\{[^}]*\}/g, '…') }];
  });
}

/** From behind the opening parenthesis to its counterpart, on one line. */
function readArguments(source: string, start: number): string {
  let depth = 1;
  let end = start;
  while (depth > 0 && end < source.length) {
    const character = source[end] ?? '';
    if ('([{'.includes(character)) depth += 1;
    if (')]}'.includes(character)) depth -= 1;
    if (`'"\``.includes(character)) end = source.indexOf(character, end + 1);
    end += 1;
  }
  return source
    .slice(start, end - 1)
    .replaceAll(/\s+/g, ' ')
    .trim();
}

/** Rows of tables below a heading that names the level: `| message | what to do |`. */
function readListed(): Message[] {
  let level = '';
  return readFileSync(resolve(ROOT, 'docs/logs.md'), 'utf8')
    .split('\n')
    .flatMap((line) => {
      level = /^## `(\w+)`$/.exec(line)?.[1] ?? level;
      const text = /^\| `([^|]+)` \|/.exec(line)?.[1];
      return text === undefined ? [] : [{ level, text: text.replaceAll("'", '`') }];
    });
}

function formatMessage({ level, text }: Message): string {
  return `${level}: ${text}`;
}
