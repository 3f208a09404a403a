import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { parseOptions } from '../../../../src/cli/option-parser.ts';
import { composeMembers } from '../../../../src/cli/options/platform-option.ts';
import {
  checkNodes,
  nodeOptions,
  storeOptions,
} from '../../../../src/cli/options/store-options.ts';
import { text } from '../../../../src/cli/options.ts';

const folder = mkdtempSync(join(tmpdir(), 'millrace-store-options-'));
const file = join(folder, 'password');
const store = 'postgres://ada@h/jobs';

afterEach(() => vi.unstubAllEnvs());
afterAll(() => rmSync(folder, { recursive: true }));

function read(...args: string[]) {
  return composeMembers(storeOptions, parseOptions(storeOptions, args).values);
}

it('sets the limits of --store by its options', () => {
  const waits = ['--store-connect-ms=101', '--store-lock-wait-ms=102'];
  const limits = [...waits, '--store-statement-ms=103', '--store-wait-ms=104'];
  expect(read('--store', store, ...limits).storeLimits).toEqual({
    ...{ connectTimeoutMs: 101, lockWaitMs: 102, statementTimeoutMs: 103, waitMs: 104 },
  });
});

describe('the password of --store', () => {
  it('is read from its file, without the line break', () => {
    writeFileSync(file, ' secret \n');
    const composed = read('--store', store, '--store-password-file', file);
    expect(composed).toMatchObject({ store, storePassword: ' secret ' });
  });

  it('is PGPASSWORD without a file', () => {
    vi.stubEnv('PGPASSWORD', 'from-environment');
    expect(read('--store', store).storePassword).toBe('from-environment');
  });

  it('is not read without --store', () => {
    vi.stubEnv('PGPASSWORD', 'from-environment');
    expect(read()).not.toHaveProperty('storePassword');
  });

  it.each([
    ['without --store', [], file, '--store-password-file needs --store'],
    ['that is missing', ['--store', store], join(folder, 'none'), 'none cannot be read: ENOENT'],
    ['that is empty', ['--store', store], join(folder, 'empty'), 'empty is empty'],
  ])('refuses a file %s', (_, url, path, problem) => {
    writeFileSync(join(folder, 'empty'), '\n');
    expect(() => read(...url, '--store-password-file', path)).toThrow(problem);
  });
});

const nodeTable = {
  ...nodeOptions,
  store: text({ help: 'database' }),
  webhookSecretFile: text({ help: 'file' }),
};
const checkNodeFlags = (...args: string[]) => checkNodes(parseOptions(nodeTable, args).values);

it('names all flags that are missing at once, and what writes the secrets', () => {
  expect(() => checkNodeFlags('--node-url', 'http://10.0.0.5:8091')).toThrow(
    '--node-url needs --store, --node-secret-file and --webhook-secret-file; `millrace nodes init` writes the secrets',
  );
  const more = ['--store', 'postgres://db/m', '--node-secret-file', 'secret'];
  expect(() => checkNodeFlags('--node-url', 'http://10.0.0.5:8091', ...more)).toThrow(
    '--node-url needs --webhook-secret-file; ',
  );
});

it('names all flags that need --node-url', () => {
  expect(() => checkNodeFlags('--shards', '4')).toThrow('--shards needs --node-url');
  expect(() => checkNodeFlags('--shards', '4', '--advertise-url', 'https://a')).toThrow(
    '--advertise-url and --shards need --node-url',
  );
  expect(checkNodeFlags('--store', 'postgres://db/m')).toBeUndefined();
});
