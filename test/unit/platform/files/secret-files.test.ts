// Files of secrets that all users of the machine can read are named at the start.
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { silentLog } from '../../../../src/base/log.ts';
import {
  readWebhookSecrets,
  useWebhookSecrets,
  warnOfOpenFiles,
} from '../../../../src/platform/files/secret-files.ts';
import { PlatformOptionError } from '../../../../src/platform/option-error.ts';
import { generatePlatformSecret } from '../../../../src/queue/webhooks/webhook-sender.ts';

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
