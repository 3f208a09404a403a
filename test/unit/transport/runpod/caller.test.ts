import { createServer } from 'node:http';
import { describe, expect, it, onTestFinished } from 'vitest';
import { systemClock } from '../../../../src/base/clock.ts';
import { silentLog } from '../../../../src/base/log.ts';
import { noProxy } from '../../../../src/base/net/outgoing-proxy.ts';
import { RunPodAddresses, RunPodCaller } from '../../../../src/transport/runpod/caller.ts';
import { RunPodPings } from '../../../../src/transport/runpod/link.ts';

const base = 'https://api.example.com/v2/ep1';
const query = '?gpu=NVIDIA+RTX+A5000';

function open(
  changes: Partial<ConstructorParameters<typeof RunPodAddresses>[0]['templates']> = {},
) {
  return new RunPodAddresses({
    podId: 'pod-abc',
    templates: {
      take: `${base}/job-take/$ID${query}`,
      done: `${base}/job-done/$RUNPOD_POD_ID/$ID${query}`,
      ping: `${base}/ping/$RUNPOD_POD_ID${query}`,
      ...changes,
    },
  });
}

describe('the addresses of a RunPod endpoint', () => {
  it('fill $ID with the worker for takes and with the job for results', () => {
    const addresses = open();
    expect(addresses.take(1, false)).toBe(`${base}/job-take/pod-abc${query}&job_in_progress=0`);
    expect(addresses.done('job-1-u1', [['isStream', 'false']])).toBe(
      `${base}/job-done/pod-abc/job-1-u1${query}&isStream=false`,
    );
    expect(addresses.ping([['job_id', 'a,b']])).toBe(`${base}/ping/pod-abc${query}&job_id=a%2Cb`);
  });

  it('request several jobs, and stops, if the platform supports them', () => {
    const addresses = open();
    expect(addresses.take(4, true)).toBe(
      `${base}/job-take-batch/pod-abc${query}&batch_size=4&job_in_progress=1`,
    );
    expect(addresses.stop).toBe(`${base}/job-stop/pod-abc${query}`);
  });

  it('have one query, however the template ends', () => {
    const take = (end: string) =>
      open({ take: `${base}/job-take/$ID${end}` })
        .take(1, false)
        .slice(base.length);
    expect(take('')).toBe('/job-take/pod-abc?job_in_progress=0');
    expect(take('?')).toBe('/job-take/pod-abc?job_in_progress=0');
    expect(take('?a=b&')).toBe('/job-take/pod-abc?a=b&job_in_progress=0');
  });

  it('fill the pod ID even if the platform did not', () => {
    const addresses = open({ take: `${base}/job-take/$RUNPOD_POD_ID` });
    expect(addresses.take(1, false)).toBe(`${base}/job-take/pod-abc?job_in_progress=0`);
  });

  it('fill the GPU type if it is known', () => {
    const ping = `${base}/ping/$RUNPOD_POD_ID?gpu=$RUNPOD_GPU_TYPE_ID`;
    const templates = { take: `${base}/job-take/$ID`, done: `${base}/job-done/$ID`, ping };
    const fill = (gpuTypeId?: string) =>
      new RunPodAddresses({ podId: 'pod-abc', gpuTypeId, templates }).ping([]);
    expect(fill('NVIDIA RTX A5000')).toBe(`${base}/ping/pod-abc?gpu=NVIDIA%20RTX%20A5000`);
    expect(fill()).toBe(`${base}/ping/pod-abc?gpu=$RUNPOD_GPU_TYPE_ID`);
  });

  it('derive the stream from the results if no template names it', () => {
    expect(open().stream('j', [])).toBe(`${base}/job-stream/pod-abc/j${query}`);
    expect(open({ done: `${base}/results/$ID` }).stream('j', [])).toBeUndefined();
  });

  it('do not change a query that looks like a path', () => {
    const take = `${base}/job-take/$ID?from=/job-take/`;
    expect(open({ take }).stop).toBe(`${base}/job-stop/pod-abc?from=/job-take/`);
    expect(open({ take: `${base}/jobs/$ID` }).stop).toBeUndefined();
  });

  it('escape job IDs in the path', () => {
    expect(open().done('../x?$&', [])).toBe(`${base}/job-done/pod-abc/..%2Fx%3F%24%26${query}`);
  });

  it('must be http or https', () => {
    expect(() => open({ take: 'job-take/$ID' })).toThrow(TypeError);
  });
});

describe('the addresses of pings', () => {
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

  it('name as many whole job IDs as fit into 6,000 characters', async () => {
    // 353 IDs of 16 characters, with commas, are 6,000 characters.
    const short = Array.from({ length: 354 }, (_, n) => `job-${n}`.padEnd(16, 'x'));
    expect(await ping(short)).toEqual(short.slice(0, 353));
    // Two of 3,000, with a comma, are one too many.
    const long = ['a', 'b', 'c'].map((letter) => letter.repeat(3_000));
    expect(await ping(long)).toEqual(long.slice(0, 1));
  });
});
