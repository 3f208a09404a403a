import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { openPlatform } from '../../../src/platform/platform.ts';
import { checkAdvertised, checkSecrets } from '../../../src/platform/platform-options.ts';

it.each([
  ['too short', 'x'.repeat(31)],
  ['with a space, which HTTP would cut', `${'x'.repeat(40)} `],
  ['with a character that no header can have', `${'x'.repeat(40)}\u20ac`],
  ['longer than a head may be', 'x'.repeat(5_000)],
])('refuses a secret %s, without naming it', (_name, secret) => {
  const check = () => checkSecrets(['y'.repeat(32), secret]);
  expect(check).toThrow(/^nodes\.secrets: needs at least one secret, each of 32 to 1024 visible/);
});

it('accepts several secrets', () => {
  expect(() => checkSecrets(['y'.repeat(32), '+/=aZ09-'.repeat(8)])).not.toThrow();
});

it.each([
  ['http://10.0.0.1:8080', ['http:', 'https:']],
  ['https://node-1.example.com/base', ['http:', 'https:']],
  ['grpcs://node-1.example.com:8090', ['grpc:', 'grpcs:']],
] as const)('advertises %s', (url, schemes) => {
  expect(() => checkAdvertised('nodes.advertiseUrl', url, schemes)).not.toThrow();
});

it.each([
  ['node-1:8080', ['http:', 'https:']],
  ['grpc://node-1:8080', ['http:', 'https:']],
  ['http://user@node-1', ['http:', 'https:']],
  ['http://node-1/?a=1', ['http:', 'https:']],
  ['http://node-1/\u20ac', ['http:', 'https:']],
  [`http://node-1/${'x'.repeat(512)}`, ['http:', 'https:']],
  ['grpc://node-1:8090/path', ['grpc:', 'grpcs:']],
] as const)('does not advertise %s', (url, schemes) => {
  const scheme = schemes[0] === 'grpc:' ? 'grpc or grpcs' : 'http or https';
  expect(() => checkAdvertised('nodes.advertiseUrl', url, schemes)).toThrow(
    `nodes.advertiseUrl: must be an ${scheme} URL of at most 512 ASCII characters`,
  );
});

it.skipIf(process.geteuid?.() !== 0)('refuses a secret file that pods could read', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'millrace-secret-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  chmodSync(folder, 0o755);
  const file = (name: string, mode: number) => {
    writeFileSync(join(folder, name), 'x'.repeat(40), { mode });
    return join(folder, name);
  };
  const opened = openPlatform({
    ...{ dataFolder: join(folder, 'data'), store: 'postgres://nobody@127.0.0.1:1/none' },
    nodes: {
      ...{ url: 'http://127.0.0.1:1', secrets: ['x'.repeat(40)] },
      secretFile: file('node-secret', 0o644),
    },
    ...{ webhooks: { secretFile: file('webhooks', 0o600) }, compute: { engine: 'process' } },
  });
  await expect(opened).rejects.toThrow(/^nodes\.secretFile: \S+node-secret can be read by/);
});
