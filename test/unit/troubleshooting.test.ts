// docs/operations/troubleshooting.md: each symptom says why and what to do, and quotes only messages that exist.
import { globSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, it } from 'vitest';

const ROOT = resolve(import.meta.dirname, '../..');

const symptoms = readFileSync(join(ROOT, 'docs/operations/troubleshooting.md'), 'utf8')
  .split(/^### /m)
  .slice(1)
  .map((text) => ({ title: text.split('\n', 1)[0] ?? '', text }));

/** As one would read it: parts of a text joined, and an ellipsis for what is filled in. */
function flatten(source: string): string {
  return source
    .replaceAll(/['"`]\s*\+\s*\n?\s*['"`]/g, '')
    .replaceAll(/\$\{(?:[^{}]|\{[^{}]*\})*\}/g, '…')
    .replaceAll(/\\(['"`])/g, '$1');
}

const sources = globSync('{src,bin}/**/*.{ts,js}', { cwd: ROOT }).map((path) =>
  flatten(readFileSync(join(ROOT, path), 'utf8')),
);

function readMessages(text: string): string[] {
  const [, line = ''] = /^- \*\*Message:\*\* ((?:.|\n {2})*)$/m.exec(text) ?? [];
  return [...line.replaceAll(/\n {2}/g, ' ').matchAll(/`([^`]+)`/g)].map(
    ([, quoted = '']) => quoted,
  );
}

function exists(message: string): boolean {
  const parts = message.split('…').filter((part) => part.trim() !== '');
  return sources.some((source) => parts.every((part) => source.includes(part)));
}

it('has many symptoms, most of them with a message', () => {
  expect(symptoms.length).toBeGreaterThan(20);
  const quoting = symptoms.filter(({ text }) => readMessages(text).length > 0);
  expect(quoting.length).toBeGreaterThan(15);
});

it.each(symptoms)('says why and what to do: $title', ({ text }) => {
  expect(text).toMatch(/^- \*\*Why:\*\* \S/m);
  expect(text).toMatch(/^- \*\*What to do:\*\* \S/m);
});

it.each(symptoms)('quotes messages that exist: $title', ({ text }) => {
  expect(readMessages(text).filter((message) => !exists(message))).toEqual([]);
});

it('finds no message that does not exist', () => {
  expect(exists('the platform is out of biscuits')).toBe(false);
});
