// The file of secrets that webhooks are signed with.
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  readWebhookSecrets,
  useWebhookSecrets,
} from '../../../../src/platform/files/webhook-secrets.ts';
import { PlatformOptionError } from '../../../../src/platform/option-error.ts';
import { generatePlatformSecret } from '../../../../src/queue/webhooks/webhook-signature.ts';

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
