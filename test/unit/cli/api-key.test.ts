// API keys with characters that copying has added, around the key or inside.
import { spawnSync } from 'node:child_process';
import { resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { parseOptions } from '../../../src/cli/option-parser.ts';
import {
  cleanKey,
  InvalidKeyError,
  keyOption,
  requiredText,
  UsageError,
} from '../../../src/cli/options.ts';

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

/** A key with an invisible character. */
const BAD = 'mr_a\u200bb';
const RUNPOD = Object.fromEntries(
  ['GET_JOB', 'POST_OUTPUT', 'POST_STREAM', 'PING'].map((name) => [
    `RUNPOD_WEBHOOK_${name}`,
    'http://127.0.0.1:9/$ID',
  ]),
);
const MACHINE = ['--url', 'http://127.0.0.1:9', '--endpoint', 'e'];

it.each<[string, string[], { env?: Record<string, string>; input?: string }, string]>([
  [
    'a worker',
    ['worker', 'handler.ts', ...MACHINE],
    { env: { MILLRACE_KEY: BAD } },
    'MILLRACE_KEY: ',
  ],
  [
    'a worker on RunPod',
    ['worker', import.meta.filename],
    { env: { RUNPOD_AI_API_KEY: BAD, RUNPOD_POD_ID: 'api-key-test', ...RUNPOD } },
    'RUNPOD_AI_API_KEY: ',
  ],
  ['a command', ['endpoints', 'list'], { env: { MILLRACE_KEY: BAD } }, 'MILLRACE_KEY: '],
  [
    'a check of another platform',
    ['conformance', 'platform', ...MACHINE],
    { env: { MILLRACE_KEY: BAD } },
    'MILLRACE_KEY: ',
  ],
  ['a sign-in', ['login', '--url', 'http://127.0.0.1:9'], { input: BAD }, ''],
])('ends %s at once with the exit code of a refused key', (_name, args, { env, input }, source) => {
  const code = `import { main } from ${JSON.stringify(MAIN)}; process.exitCode = await main(${JSON.stringify(args)});`;
  const { status, stderr } = spawnSync(process.execPath, ['--input-type=module', '-e', code], {
    ...{ env: { ...process.env, ...env }, encoding: 'utf8', input },
  });
  expect(stderr).toContain(`${source}character 5 of the key is U+200B`);
  expect(stderr).not.toContain('mr_a');
  expect(status).toBe(6);
});
