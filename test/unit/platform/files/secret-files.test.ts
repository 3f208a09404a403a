// Files of secrets that all users of the machine can read are named at the start.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { silentLog } from '../../../../src/base/log.ts';
import { warnOfOpenFiles } from '../../../../src/platform/files/secret-files.ts';

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
