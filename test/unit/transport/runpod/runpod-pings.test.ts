// Pings to a real HTTP server: which job IDs fit into the address.
import { createServer } from 'node:http';
import { expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { noProxy } from '../../../../src/base/net/outgoing-proxy.ts';
import { RunPodAddresses } from '../../../../src/transport/runpod/addresses.ts';
import { RunPodCaller } from '../../../../src/transport/runpod/caller.ts';
import { RunPodPings } from '../../../../src/transport/runpod/pings.ts';

/** The job IDs that one ping names. */
async function ping(jobIds: readonly string[]): Promise<string[]> {
  const pinged = Promise.withResolvers<string>();
  const stopping = new AbortController();
  const server = createServer((request, response) => {
    pinged.resolve(request.url ?? '');
    response.end('{}');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  const base = `http://127.0.0.1:${address.port}`;
  const caller = new RunPodCaller({ key: undefined, chooseProxy: noProxy, version: '0' });
  onTestFinished(async () => {
    await caller.close();
    server.close();
  });
  const templates = { take: `${base}/job-take/$ID`, done: `${base}/done`, ping: `${base}/ping` };
  const running = new RunPodPings({
    ...{ addresses: new RunPodAddresses({ podId: 'pod', templates }), caller },
    ...{ everyMs: 30_000, clock: systemClock, log: silentLog, signal: stopping.signal },
    listJobIds: () => jobIds,
  }).run();
  const { searchParams } = new URL(await pinged.promise, base);
  stopping.abort();
  await running;
  return searchParams.get('job_id')?.split(',') ?? [];
}

it('a ping names as many whole job IDs as fit into 6,000 characters', async () => {
  // 353 IDs of 16 characters, with commas, are 6,000 characters.
  const short = Array.from({ length: 354 }, (_, n) => `job-${n}`.padEnd(16, 'x'));
  expect(await ping(short)).toEqual(short.slice(0, 353));
  // Two of 3,000, with a comma, are one too many.
  const long = ['a', 'b', 'c'].map((letter) => letter.repeat(3_000));
  expect(await ping(long)).toEqual(long.slice(0, 1));
});
