// A node that starts compares its webhook secrets with those of the running nodes.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findFreePort } from '../../support/network/free-port.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { PlatformProcess, Process } from '../../support/processes.ts';

const isLeftOut = leaveOutWithoutPostgres('test/e2e/storage/nodes-webhook-secrets.test.ts');
const [FIRST, SECOND, THIRD] = ['a', 'b', 'c'].map((letter) => `mrw_${letter.repeat(43)}`);

describe.skipIf(isLeftOut)('a node beside a running one', () => {
  let server: PostgresServer;
  let running: PlatformProcess;
  let folder: string;
  let count = 0;

  const describeNode = async (secrets: (string | undefined)[]): Promise<string[]> => {
    const file = async (name: string, lines: (string | undefined)[]) => {
      const path = join(folder, name);
      await writeFile(path, `${lines.join('\n')}\n`, { mode: 0o600 });
      return path;
    };
    count += 1;
    const url = `http://127.0.0.1:${await findFreePort()}`;
    const secretFile = await file('node-secret', ['s'.repeat(40)]);
    const webhooks = await file(`webhook-secrets-${count}`, secrets);
    const node = ['--node-url', url, '--node-secret-file', secretFile, '--shards', '2'];
    return [
      ...['--store', server.url(), '--engine', 'none', ...node, '--webhook-secret-file', webhooks],
    ];
  };

  const start = async (...secrets: (string | undefined)[]): Promise<PlatformProcess> => {
    const args = await describeNode(secrets);
    return PlatformProcess.start({ endpoints: [], keyFile: join(folder, 'keys'), args });
  };

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'millrace-secrets-'));
    server = await PostgresServer.start();
    running = await start(FIRST, SECOND);
  });
  afterAll(async () => {
    await running?.close();
    await server?.stop();
    await rm(folder, { recursive: true, force: true });
  });

  it('does not start with other webhook secrets', async () => {
    const data = ['--port', '0', '--data', join(folder, 'data')];
    const refused = new Process(['serve', ...data, ...(await describeNode([THIRD]))]);
    expect(await refused.exited).toBe(2);
    expect(await refused.find(/--webhook-secret-file: .*/)).toMatch(
      /has no secret in common with the node http:\/\/127\.0\.0\.1:\d+/,
    );
    expect((await running.fetch('/readyz')).status).toBe(200);
  });

  it.each([
    ['the same secrets in another order', [SECOND, FIRST], false],
    ['one of the secrets and a new one', [FIRST, THIRD], true],
  ])('starts with %s', async (_name, secrets, isWarned) => {
    const node = await start(...secrets);
    try {
      expect(node.process.output.includes('webhook secrets of a node differ')).toBe(isWarned);
    } finally {
      await node.close();
    }
  });
});
