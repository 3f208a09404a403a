// The packages for S3 come from the project of the handler, which may not be where this package is.
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { readHandlerFile } from '../../../src/handler/loading/handler-file.ts';
import { loadHandler } from '../../../src/handler/loading/load.ts';
import { loadFrom } from '../../../src/storage/s3-client.ts';

function makeProject(): string {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-s3-packages-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  writeFileSync(join(folder, 'handler.mjs'), 'export default () => 1;');
  return folder;
}

it('finds the packages of the project from the handler that was loaded', async () => {
  const folder = makeProject();
  const file = join(folder, 'handler.mjs');
  await loadHandler(file);
  expect(readHandlerFile()).toBe(file);
  expect(loadFrom(readHandlerFile())).toBeUndefined();
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(resolve('node_modules/@aws-sdk'), join(folder, 'node_modules/@aws-sdk'));
  expect(loadFrom(readHandlerFile())).toMatchObject({
    client: { S3Client: expect.any(Function) },
    presigner: { getSignedUrl: expect.any(Function) },
  });
});

it('reports a package that is installed and broken', () => {
  const folder = makeProject();
  const broken = join(folder, 'node_modules/@aws-sdk/client-s3');
  mkdirSync(broken, { recursive: true });
  writeFileSync(join(broken, 'index.js'), "throw new Error('broken on purpose');");
  expect(() => loadFrom(join(folder, 'handler.mjs'))).toThrow('broken on purpose');
});
