import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { parseOptions } from '../../../../src/cli/option-parser.ts';
import {
  nodeOptions,
  readNodes,
  readStore,
  storeOptions,
} from '../../../../src/cli/options/store-options.ts';
import { text } from '../../../../src/cli/options.ts';

const folder = mkdtempSync(join(tmpdir(), 'millrace-store-options-'));
const file = join(folder, 'password');
const store = 'postgres://ada@h/jobs';

afterEach(() => vi.unstubAllEnvs());
afterAll(() => rmSync(folder, { recursive: true }));

const values = {
  ...parseOptions(storeOptions, ['--store', store]).values,
  ...{ storeConnectMs: 101, storeLockWaitMs: 102, storeStatementMs: 103, storeWaitMs: 104 },
};
const read = (given: Partial<Parameters<typeof readStore>[0]>) =>
  readStore({ ...values, ...given });

it('sets the limits of --store by its options', () => {
  expect(read({}).storeLimits).toEqual({
    ...{ connectTimeoutMs: 101, lockWaitMs: 102, statementTimeoutMs: 103, waitMs: 104 },
  });
});

describe('the password of --store', () => {
  it('is read from its file, without the line break', () => {
    writeFileSync(file, ' secret \n');
    expect(read({ storePasswordFile: file })).toMatchObject({ store, storePassword: ' secret ' });
  });

  it('is PGPASSWORD without a file', () => {
    vi.stubEnv('PGPASSWORD', 'from-environment');
    expect(read({}).storePassword).toBe('from-environment');
  });

  it('is not read without --store', () => {
    vi.stubEnv('PGPASSWORD', 'from-environment');
    const none = { store: undefined, storePassword: undefined };
    expect(read({ store: undefined })).toMatchObject(none);
  });

  it.each([
    ['without --store', undefined, file, '--store-password-file needs --store'],
    ['that is missing', store, join(folder, 'none'), '--store-password-file: ENOENT'],
    ['that is empty', store, join(folder, 'empty'), 'empty is empty'],
  ])('refuses a file %s', (_, url, path, problem) => {
    writeFileSync(join(folder, 'empty'), '\n');
    expect(() => read({ store: url, storePasswordFile: path })).toThrow(problem);
  });
});

const nodeTable = {
  ...nodeOptions,
  store: text({ help: 'database' }),
  webhookSecretFile: text({ help: 'file' }),
};
const readNodeFlags = (...args: string[]) => readNodes(parseOptions(nodeTable, args).values);

it('names all flags that are missing at once, and what writes the secrets', () => {
  expect(() => readNodeFlags('--node-url', 'http://10.0.0.5:8091')).toThrow(
    '--node-url needs --store, --node-secret-file and --webhook-secret-file; `millrace nodes init` writes the secrets',
  );
  const more = ['--store', 'postgres://db/m', '--node-secret-file', 'secret'];
  expect(() => readNodeFlags('--node-url', 'http://10.0.0.5:8091', ...more)).toThrow(
    '--node-url needs --webhook-secret-file; ',
  );
});

it('names all flags that need --node-url', () => {
  expect(() => readNodeFlags('--shards', '4')).toThrow('--shards needs --node-url');
  expect(() => readNodeFlags('--shards', '4', '--advertise-url', 'https://a')).toThrow(
    '--shards and --advertise-url need --node-url',
  );
  expect(readNodeFlags('--store', 'postgres://db/m')).toBeUndefined();
});
