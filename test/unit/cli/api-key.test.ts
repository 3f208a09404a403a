// API keys with characters that copying has added, around the key or inside.
import { spawnSync } from 'node:child_process';
import { resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { cleanKey, keyOption } from '../../../src/cli/api-key.ts';
import { parseOptions } from '../../../src/cli/option-parser.ts';
import { InvalidKeyError, requiredText, UsageError } from '../../../src/cli/options.ts';

const KEY = `mr_${'x'.repeat(43)}`;
const MAIN = resolve(import.meta.dirname, '../../../src/cli/main.ts');
const table = { key: keyOption(requiredText({ placeholder: 'KEY', help: '' })) };

describe('a key', () => {
  it.each([`${KEY}\n`, `${KEY}\r\n`, ` ${KEY}\u00a0`, `\u200b${KEY}\u200b`, `\ufeff${KEY}\u2028`])(
    'loses what stands around it: %j',
    (given) => {
      expect(cleanKey(given)).toBe(KEY);
      expect(parseOptions(table, [`--key=${given}`]).values.key).toBe(KEY);
    },
  );

  it.each([
    ['mr_a\u200bb', 'character 5 of the key is U+200B'],
    ['mr_а', 'character 4 of the key is U+0430'],
    ['mr_a\nmr_b', 'character 5 of the key is U+000A'],
    ['mr_\u{1f511}', 'character 4 of the key is U+1F511'],
  ])('is refused with another character inside: %j', (given, problem) => {
    expect(() => cleanKey(given)).toThrow(InvalidKeyError);
    expect(() => parseOptions(table, [`--key=${given}`])).toThrow(`--key: ${problem}`);
  });

  it('is missing if the text has nothing but white space', () => {
    expect(() => parseOptions(table, ['--key=\u200b'])).toThrow(UsageError);
  });
});

it.each([
  ['a worker', ['worker', 'handler.ts', '--url', 'http://127.0.0.1:9', '--endpoint', 'e']],
  ['a command', ['endpoints', 'list']],
])('%s ends at once with the exit code of a refused key', (_name, args) => {
  const env = { ...process.env, MILLRACE_KEY: 'mr_a\u200bb' };
  const code = `import { main } from ${JSON.stringify(MAIN)}; process.exitCode = await main(${JSON.stringify(args)});`;
  const run = ['--input-type=module', '-e', code];
  const { status, stderr } = spawnSync(process.execPath, run, { env, encoding: 'utf8' });
  expect(stderr).toContain('MILLRACE_KEY: character 5 of the key is U+200B');
  expect(stderr).not.toContain('mr_a');
  expect(status).toBe(6);
});
