// Each end of a job has one line in the files of the history, while the platform is killed as a file arrives at the bucket, and
// when another node takes over.
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { createClient } from '../../../src/client.ts';
import { answerError, S3_KEYS, S3Server } from '../../support/network/s3-server.ts';
import { NodeProcesses } from '../../support/node-processes.ts';
import { leaveOutWithoutPostgres, PostgresServer } from '../../support/postgres.ts';
import { PlatformProcess } from '../../support/processes.ts';
import { until } from '../../support/until.ts';

const isLeftOut = leaveOutWithoutPostgres('test/e2e/storage/history.test.ts');

let bucket: S3Server;
let folder: string;
beforeEach(async () => {
  bucket = await S3Server.start('jobs');
  folder = await mkdtemp(join(tmpdir(), 'millrace-history-'));
  await writeFile(join(folder, 'key'), `${S3_KEYS.accessId}\n${S3_KEYS.accessSecret}\n`, {
    mode: 0o600,
  });
});
afterEach(async () => {
  await bucket[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

const args = () => [
  ...['--history-to', 's3://jobs/main', '--history-policy', 'FULL', '--history-seconds', '1'],
  ...['--history-s3-url', bucket.url, '--history-key-file', join(folder, 'key')],
];

function listIds(): string[] {
  return [...bucket.objects.values()].flatMap(({ body }) =>
    gunzipSync(body)
      .toString()
      .trimEnd()
      .split('\n')
      .map((line) => String(JSON.parse(line).id)),
  );
}

/** @returns the IDs of jobs that have ended */
async function endJobs(url: string, key: string, endpoint = 'e'): Promise<string[]> {
  const client = createClient({ url, key, endpoint });
  const submitted = await client.runMany(Array.from({ length: 40 }, (_, n) => ({ input: { n } })));
  await client.changeJobs('cancel', {});
  return submitted.map((each) => (each.status === 'fulfilled' ? each.value.id : 'refused'));
}

const hasAll = (ended: readonly string[]) =>
  until(() => new Set(listIds()).size >= ended.length, { everyMs: 50 });

it('has each end once, whether the platform is killed before or after the bucket has the file', async () => {
  const platform = await PlatformProcess.start({ endpoints: ['e'], args: args() });
  try {
    const ended: string[] = [];
    for (const isStored of [false, true, false, true]) {
      const { promise: isReady, resolve: ready } = Promise.withResolvers<void>();
      let hasArrived = false;
      bucket.intercept = async (_, response) => {
        await isReady;
        if (hasArrived) return false;
        hasArrived = true;
        if (!isStored) {
          await platform.kill();
          return true;
        }
        // The answer comes too late.
        response.writeHead = ((...head: [number]) => {
          platform.process.child.kill('SIGKILL');
          return Object.getPrototypeOf(response).writeHead.apply(response, head);
        }) as typeof response.writeHead;
        return false;
      };
      ended.push(...(await endJobs(platform.url, platform.adminKey)));
      ready();
      await platform.process.exited;
      await platform.restart();
    }
    bucket.intercept = (_, response) => {
      answerError(response, 503, 'SlowDown');
      return true;
    };
    ended.push(...(await endJobs(platform.url, platform.adminKey)));
    await platform.process.find(/writing a file of history failed, retrying/);
    bucket.intercept = () => false;
    await hasAll(ended);
    expect(listIds().sort()).toEqual(ended.sort());
    const metrics = await (await platform.fetch('/metrics')).text();
    expect(metrics).toContain('millrace_history_dropped_total{endpoint="e"} 0');
  } finally {
    await platform.close();
  }
});

it.skipIf(isLeftOut)('has each end once when another node takes over', async () => {
  const server = await PostgresServer.start();
  let nodes: NodeProcesses | undefined;
  try {
    const store = await server.createDatabase();
    const options = { store, count: 2, shards: 2, args: args() };
    nodes = await NodeProcesses.start({ ...options, endpoints: ['a', 'b', 'c'] });
    const [first, second] = nodes.all;
    if (!first || !second) throw new Error('no nodes');
    bucket.intercept = (_, response) => {
      answerError(response, 503, 'SlowDown');
      return true;
    };
    const ended: string[] = [];
    for (const endpoint of ['a', 'b', 'c']) {
      ended.push(...(await endJobs(first.url, first.adminKey, endpoint)));
    }
    await first.kill();
    bucket.intercept = () => false;
    await hasAll(ended);
    expect(listIds().sort()).toEqual(ended.sort());
  } finally {
    await nodes?.close();
    await server.stop();
  }
});
