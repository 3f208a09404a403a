// Files of secrets that all users of the machine can read are named at the start.
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { Keys } from '../../../../src/control/keys/keys.ts';
import { generateKey } from '../../../../src/control/keys/known-keys.ts';
import {
  readWebhookSecrets,
  useKeyFile,
  useWebhookSecrets,
  warnOfOpenFiles,
} from '../../../../src/platform/files/secret-files.ts';
import { PlatformOptionError } from '../../../../src/platform/option-error.ts';
import { generatePlatformSecret } from '../../../../src/queue/webhooks/webhook-sender.ts';
import { openSqliteStore } from '../../../../src/store/sqlite/sqlite.ts';
import type { Store } from '../../../../src/store/store.ts';

it('names each file that others can read, with its option and mode', () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-secrets-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const write = (name: string, mode: number) => {
    const path = join(folder, name);
    writeFileSync(path, 'secret', { mode });
    return path;
  };
  const keyFile = write('open', 0o644);
  const warned: unknown[] = [];
  const warn = (fields: unknown, message: unknown) => warned.push([fields, message]);
  const files = {
    keyFile,
    secretsKeyFile: write('own', 0o600),
    'tls.key': write('group', 0o640),
    'nodes.secretFile': join(folder, 'missing'),
    'webhooks.secretFile': undefined,
  };
  warnOfOpenFiles(files, Object.assign(Object.create(silentLog), { warn }));
  const message = 'file of secrets is open to all users of this machine';
  expect(warned).toEqual([[{ option: 'keyFile', path: keyFile, mode: '644' }, message]]);
});

let folder: string;
let file: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'millrace-secrets-'));
  file = join(folder, 'webhook-secrets');
});

afterEach(() => rmSync(folder, { recursive: true }));

describe('the file of webhook secrets', () => {
  it('is created with one secret for its owner only, and read by later starts', () => {
    const made = useWebhookSecrets(file);
    expect(made).toEqual([readFileSync(file, 'utf8').trim()]);
    expect(made[0]).toMatch(/^mrw_[\w-]{43}$/);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(useWebhookSecrets(file)).toEqual(made);
  });

  it('is not created by readers', () => {
    expect(readWebhookSecrets(file)).toBeUndefined();
  });

  it('may hold several, comments and empty lines', () => {
    const [one, two] = [generatePlatformSecret(), generatePlatformSecret()];
    writeFileSync(file, `# newest last\n${one}\r\n\n  ${two}\n`);
    expect(useWebhookSecrets(file)).toEqual([one, two]);
  });

  it('is refused with the invalid line’s number, without quoting it', () => {
    writeFileSync(file, `${generatePlatformSecret()}\nhunter2\n`);
    expect(() => useWebhookSecrets(file)).toThrow(PlatformOptionError);
    expect(() => useWebhookSecrets(file)).toThrow(/^(?!.*hunter2).*line 2/);
  });

  it('is refused if it is empty or cannot be read or created', () => {
    writeFileSync(file, '\n');
    expect(() => useWebhookSecrets(file)).toThrow(PlatformOptionError);
    expect(() => useWebhookSecrets(folder)).toThrow(PlatformOptionError);
    expect(() => useWebhookSecrets(join(folder, 'missing', 'file'))).toThrow(PlatformOptionError);
  });
});

describe('the key file', () => {
  let folder: string;
  let path: string;
  let store: Store;
  let keys: Keys;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'millrace-keys-'));
    path = join(folder, 'keys');
    store = openSqliteStore({ path: ':memory:' });
    keys = await Keys.open({ store, clock: systemClock });
  });

  afterEach(async () => {
    await store.close();
    await rm(folder, { recursive: true });
  });

  it('is created if it is missing, for its owner only', async () => {
    const { admin, origin, worker } = await useKeyFile(keys, path);
    const lines = `MILLRACE_ADMIN_KEY=${admin}\nMILLRACE_WORKER_KEY=${worker}\n`;
    expect(origin).toBe('written');
    expect(await readFile(path, 'utf8')).toBe(lines);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
  });

  it('is read if it exists, and its keys are valid', async () => {
    const admin = generateKey();
    const worker = generateKey();
    await writeFile(
      path,
      `# ours\nMILLRACE_WORKER_KEY = ${worker}\r\nMILLRACE_ADMIN_KEY=${admin}\n`,
    );
    expect(await useKeyFile(keys, path)).toEqual({ admin, worker, origin: 'read' });
    expect(keys.authenticate(admin)?.scopes).toEqual(new Set(['admin']));
    expect(keys.authenticate(worker)?.scopes).toEqual(new Set(['worker']));
  });

  it('binds the worker key to the declared endpoints, now and later', async () => {
    const { admin, worker } = await useKeyFile(keys, path, ['a']);
    expect(keys.authenticate(admin)?.scopes).toEqual(new Set(['admin']));
    expect(keys.authenticate(worker)?.scopes).toEqual(new Set(['worker:a']));
    await useKeyFile(keys, path);
    expect(keys.authenticate(worker)?.scopes).toEqual(new Set(['worker:a']));
    await useKeyFile(keys, path, ['b', 'a']);
    expect(keys.authenticate(worker)?.scopes).toEqual(new Set(['worker:a', 'worker:b']));
  });

  it('does not change a worker key for all endpoints', async () => {
    const { worker } = await useKeyFile(keys, path);
    await useKeyFile(keys, path, ['a']);
    expect(keys.authenticate(worker)?.scopes).toEqual(new Set(['worker']));
  });

  it('is refused without one of the keys, naming it', async () => {
    await writeFile(path, `MILLRACE_ADMIN_KEY=${generateKey()}\n`);
    const refused = useKeyFile(keys, path);
    await expect(refused).rejects.toMatchObject({ fault: 'invalid', option: 'keyFile' });
    await expect(refused).rejects.toThrow('MILLRACE_WORKER_KEY');
  });

  it('is refused with invalid keys, without showing them', async () => {
    await writeFile(path, 'MILLRACE_ADMIN_KEY=secret\nMILLRACE_WORKER_KEY=secret\n');
    const refused = useKeyFile(keys, path);
    await expect(refused).rejects.toMatchObject({ fault: 'invalid', option: 'keyFile' });
    await expect(refused).rejects.not.toThrow('=secret');
  });

  it('is refused in a missing folder', async () => {
    const refused = useKeyFile(keys, join(folder, 'none/keys'));
    await expect(refused).rejects.toMatchObject({ option: 'keyFile' });
    await expect(refused).rejects.toThrow('ENOENT');
  });
});
