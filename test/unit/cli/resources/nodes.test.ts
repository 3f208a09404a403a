// `millrace nodes init` writes files that `serve` reads.
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { nodesCommands } from '../../../../src/cli/resources/nodes.ts';
import { readSecretKeys, readWebhookSecrets } from '../../../../src/platform/files/secret-files.ts';
import { checkSecrets } from '../../../../src/platform/platform-options.ts';
import { printVerb } from '../../../support/runs/verb-run.ts';

let folder: string;

beforeEach(() => {
  const parent = mkdtempSync(join(tmpdir(), 'millrace-secrets-'));
  onTestFinished(() => rmSync(parent, { recursive: true }));
  folder = join(parent, 'new');
});

const read = (name: string) => readFileSync(join(folder, name), 'utf8');

it('writes secrets that only their owner can read, and prints the flags', async () => {
  const printed = await printVerb(nodesCommands, ['init', folder]);
  checkSecrets(read('node-secret').trimEnd().split('\n'));
  expect(readSecretKeys(join(folder, 'secrets-key'))).toHaveLength(1);
  expect(readWebhookSecrets(join(folder, 'webhook-secrets'))).toHaveLength(1);
  expect(read('keys')).toMatch(/^MILLRACE_ADMIN_KEY=mr_.{43}\nMILLRACE_WORKER_KEY=mr_.{43}\n$/);
  const files = {
    '--node-secret-file': 'node-secret',
    '--webhook-secret-file': 'webhook-secrets',
    '--key-file': 'keys',
    '--secrets-key-file': 'secrets-key',
  };
  for (const [flag, name] of Object.entries(files)) {
    expect(statSync(join(folder, name)).mode & 0o777).toBe(0o600);
    expect(printed).toContain(`${flag} ${join(folder, name)}`);
  }
  expect(statSync(folder).mode & 0o777).toBe(0o700);
});

it('leaves the files that exist', async () => {
  await printVerb(nodesCommands, ['init', folder]);
  const before = ['node-secret', 'webhook-secrets', 'keys', 'secrets-key'].map(read);
  await printVerb(nodesCommands, ['init', folder]);
  expect(['node-secret', 'webhook-secrets', 'keys', 'secrets-key'].map(read)).toEqual(before);
});

it('names a folder that it cannot use', async () => {
  await printVerb(nodesCommands, ['init', folder]);
  const file = join(folder, 'keys');
  await expect(printVerb(nodesCommands, ['init', file])).rejects.toThrow(`${file}: EEXIST`);
});
