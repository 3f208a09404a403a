import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { readStore } from '../../../../src/cli/options/store-options.ts';

const folder = mkdtempSync(join(tmpdir(), 'millrace-store-options-'));
const file = join(folder, 'password');
const store = 'postgres://ada@h/jobs';

afterEach(() => vi.unstubAllEnvs());
afterAll(() => rmSync(folder, { recursive: true }));

describe('the password of --store', () => {
  it('is read from its file, without the line break', () => {
    writeFileSync(file, ' secret \n');
    expect(readStore({ store, storePasswordFile: file })).toEqual({
      store,
      storePassword: ' secret ',
    });
  });

  it('is PGPASSWORD without a file', () => {
    vi.stubEnv('PGPASSWORD', 'from-environment');
    expect(readStore({ store, storePasswordFile: undefined }).storePassword).toBe(
      'from-environment',
    );
  });

  it('is not read without --store', () => {
    vi.stubEnv('PGPASSWORD', 'from-environment');
    const none = { store: undefined, storePasswordFile: undefined };
    expect(readStore(none)).toEqual({ store: undefined, storePassword: undefined });
  });

  it.each([
    ['without --store', undefined, file, '--store-password-file needs --store'],
    ['that is missing', store, join(folder, 'none'), '--store-password-file: ENOENT'],
    ['that is empty', store, join(folder, 'empty'), 'empty is empty'],
  ])('refuses a file %s', (_, url, path, problem) => {
    writeFileSync(join(folder, 'empty'), '\n');
    expect(() => readStore({ store: url, storePasswordFile: path })).toThrow(problem);
  });
});
