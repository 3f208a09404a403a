// What the attacker does as a worker of its own endpoint, to have jobs with outputs and chunks.

import { decodeFrames, encodeFrames, FRAMES_MEDIA_TYPE } from '../../../src/wire/link/http-form.ts';
import type { ReportHeader } from '../../../src/wire/link/worker-link.ts';
import { fillPath } from '../../../src/wire/routes/route.ts';
import { JOB_ROUTES, WORKER_HEADERS, WORKER_ROUTES } from '../../../src/wire/routes/routes.ts';
import type { Target } from './attack.ts';
import { callOwn } from './raw-http.ts';

const WORKER = { workerId: 'preparing', incarnation: 1 };

interface Taken {
  jobId: string;
  attempt: number;
  token: string;
}

/** @returns the id of a job that is COMPLETED with this output, JSON */
export async function finishJob(own: Target, output: Uint8Array): Promise<string> {
  const target = await asWorker(own);
  const lease = await takeJob(target);
  const outcome = { kind: 'completed', executionMs: 1, output: 'value' } as const;
  await report(target, { ...lease, seq: 1, kind: 'outcome', outcome }, output);
  return lease.jobId;
}

/** @returns the id of a job that is COMPLETED after so many chunks */
export async function streamJob(
  own: Target,
  { chunkBytes, chunks }: { chunks: number; chunkBytes: number },
): Promise<string> {
  const target = await asWorker(own);
  const lease = await takeJob(target);
  const body = Buffer.from(`{"output":"${'x'.repeat(chunkBytes - 27)}","metrics":{}}`);
  for (let first = 0; first < chunks; first++) {
    const place = { seq: first + 1, kind: 'chunks' as const, first };
    await report(target, { ...lease, ...place, sizes: [body.length] }, body);
  }
  const outcome = { kind: 'completed', executionMs: 1, output: 'chunks' } as const;
  await report(target, { ...lease, seq: chunks + 1, kind: 'outcome', outcome }, Buffer.alloc(0));
  return lease.jobId;
}

/** With a key of its own: how many live workers one key has is bounded, and attacked. */
async function asWorker(own: Target): Promise<Target> {
  const scopes = ['worker', 'jobs:write'];
  const { key } = await callOwn(own, '/v1/keys', { name: 'preparing', scopes });
  return { ...own, key: String(key) };
}

async function takeJob(target: Target): Promise<Taken> {
  const { endpoint, key, url } = target;
  await callOwn(target, fillPath(WORKER_ROUTES.hello, { endpoint }), {
    ...{ ...WORKER, protocol: 1, version: '0', slots: 1, devices: [], outbox: [] },
  });
  // The oldest one first: jobs that other attacks left behind are not wanted.
  await callOwn(target, fillPath(JOB_ROUTES.purgeQueue, { endpoint }), {});
  await callOwn(target, fillPath(JOB_ROUTES.runJob, { endpoint }), { input: {} });
  const response = await fetch(`${url}${fillPath(WORKER_ROUTES.take, { endpoint })}`, {
    method: 'POST',
    headers: { authorization: key, 'content-type': 'application/json' },
    body: JSON.stringify({
      ...WORKER,
      takeId: crypto.randomUUID(),
      max: 1,
      waitMs: 5_000,
      held: [],
    }),
  });
  const [frame] = decodeFrames(new Uint8Array(await response.arrayBuffer()));
  if (!frame) throw new Error(`no job to take: ${response.status}`);
  const { attempt, jobId, token } = Object(frame.header);
  const lease = { jobId, attempt, token };
  await callOwn(target, fillPath(WORKER_ROUTES.renew, { endpoint }), {
    ...{ ...WORKER, waitMs: 0, leases: [{ jobId, token, stopping: false }] },
  });
  return lease;
}

async function report(target: Target, header: ReportHeader, body: Uint8Array): Promise<void> {
  const { endpoint, key, url } = target;
  const response = await fetch(`${url}${fillPath(WORKER_ROUTES.report, { endpoint })}`, {
    method: 'POST',
    headers: {
      authorization: key,
      'content-type': FRAMES_MEDIA_TYPE,
      [WORKER_HEADERS.worker]: WORKER.workerId,
      [WORKER_HEADERS.incarnation]: String(WORKER.incarnation),
    },
    body: new Blob(encodeFrames([{ header, body }]).map((piece) => new Uint8Array(piece))),
  });
  const text = await response.text();
  if (!text.includes('applied')) throw new Error(`not applied: ${response.status} ${text}`);
}
