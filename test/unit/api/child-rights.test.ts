// For which endpoints the key of a worker may start children: the body of its `waiting` outcome may be written by anyone.
import { describe, expect, it } from 'vitest';
import { encodeFrames, FRAMES_MEDIA_TYPE } from '../../../src/wire/link/http-form.ts';
import {
  ENDPOINT,
  type Platform,
  readJson,
  startPlatform,
  submitJob,
} from '../../support/api/platform.ts';

const WORKER = { workerId: 'w9', incarnation: 3 };
const HELLO = { ...WORKER, protocol: 1, version: '1', slots: 4, devices: [], outbox: [] };

interface Stage {
  platform: Platform;
  /** ID of another endpoint of the owner, and its name. */
  other: string;
  name: string;
  /** Of another user. */
  foreign: string;
}

async function startStage(): Promise<Stage> {
  const platform = await startPlatform({ engine: 'process' });
  const { key } = await platform.keys.issue({ name: 'ann', scopes: ['admin'], userId: 'ann' });
  const make = async (path: string, body: object, authorization: string) => {
    const answer = await platform.post(path, body, { headers: { authorization } });
    const { id } = await readJson(answer);
    return String(id);
  };
  const makeEndpoint = async (name: string, authorization: string) => {
    const template = { name: 't', image: 'i', handler: 'h.ts' };
    const templateId = await make('/v1/templates', template, authorization);
    return make('/v1/endpoints', { name, templateId }, authorization);
  };
  const name = 'other-endpoint';
  const other = await makeEndpoint(name, `Bearer ${platform.admin}`);
  const foreign = await makeEndpoint('of-ann', `Bearer ${key}`);
  return { platform, other, name, foreign };
}

/** Runs a job whose attempt ends as waiting with this body, with a key of the scopes. */
async function wait(
  { platform }: Pick<Stage, 'platform'>,
  body: string,
  { podId, scopes }: { scopes: string[]; podId?: string | undefined },
): Promise<{ answer: Response; job: () => Promise<Record<string, unknown>> }> {
  const { key } = await platform.keys.issue({ name: 'k', scopes, ...(podId && { podId }) });
  const id = await submitJob(platform);
  await platform.link.hello(HELLO);
  const take = { ...WORKER, takeId: crypto.randomUUID(), max: 1, waitMs: 2_000, held: [] };
  const [lease] = await platform.link.take(take, new AbortController().signal);
  if (!lease) throw new Error('there was no job to take');
  const { attempt, jobId, token } = lease;
  const header = { jobId, attempt, token, seq: 1, kind: 'outcome' };
  const outcome = { kind: 'waiting', executionMs: 1 };
  const frames = encodeFrames([{ header: { ...header, outcome }, body: Buffer.from(body) }]);
  const answer = await platform.call(`/v2/${ENDPOINT}/worker/report`, {
    ...{ method: 'POST', body: Buffer.concat(frames) },
    headers: {
      authorization: `Bearer ${key}`,
      'content-type': FRAMES_MEDIA_TYPE,
      'millrace-worker': WORKER.workerId,
      'millrace-incarnation': '3',
    },
  });
  return {
    answer,
    job: async () => readJson(await platform.call(`/v2/${ENDPOINT}/status/${id}`)),
  };
}

function child(endpoint: string): string {
  return JSON.stringify([{ kind: 'child', name: 'a', digest: '', endpoint, input: {} }]);
}

async function countJobs({ platform }: Stage, endpoint: string): Promise<number> {
  const listing = { endpointId: endpoint, status: undefined, before: undefined, limit: 10 };
  const { jobs } = await platform.queue.jobs.list(listing);
  return jobs.length;
}

describe('a worker whose key is for its own endpoint', () => {
  const scopes = [`worker:${ENDPOINT}`];

  it('starts children there', async () => {
    const stage = await startStage();
    const { answer } = await wait(stage, child(ENDPOINT), { scopes });
    expect(answer.status).toBe(200);
    expect(await countJobs(stage, ENDPOINT)).toBe(2);
  });

  it.each(['ID', 'name'])('starts none at another endpoint, given by its %s', async (by) => {
    const stage = await startStage();
    const given = by === 'ID' ? stage.other : stage.name;
    const { answer } = await wait(stage, child(given), { scopes });
    expect(answer.status).toBe(422);
    expect(await readJson(answer)).toMatchObject({
      detail: expect.stringContaining(`not valid for endpoint ${given}`),
    });
    expect(await countJobs(stage, stage.other)).toBe(0);
  });

  it('starts none at another endpoint if the body spells `endpoint` with an escape', async () => {
    const stage = await startStage();
    const body = child(stage.other).replace('"endpoint"', '"\\u0065ndpoint"');
    const { answer } = await wait(stage, body, { scopes });
    expect(answer.status).toBe(422);
    expect(await countJobs(stage, stage.other)).toBe(0);
  });
});

describe('a worker that may start children at another endpoint', () => {
  it.each([
    ['with the scope worker for it', (id: string) => [`worker:${id}`], undefined],
    ['with the scope jobs:write for it', (id: string) => [`jobs:write:${id}`], undefined],
    ['because the platform has started it', () => [], 'pod'],
  ])('starts them %s, given by ID or name', async (_, listScopes, podId) => {
    const stage = await startStage();
    const scopes = [`worker:${ENDPOINT}`, ...listScopes(stage.other)];
    const first = await wait(stage, child(stage.other), { scopes, podId });
    expect(first.answer.status).toBe(200);
    const second = await wait(stage, child(stage.name), { scopes, podId });
    expect(second.answer.status).toBe(200);
    expect(await countJobs(stage, stage.other)).toBe(2);
  });

  it('starts none at the endpoint of another user', async () => {
    const stage = await startStage();
    const asked = child(stage.foreign);
    const { answer, job } = await wait(stage, asked, { scopes: ['worker'], podId: 'pod' });
    expect(answer.status).toBe(200);
    expect(await job()).toMatchObject({ status: 'FAILED', error: { code: 'wait_failed' } });
    expect(await countJobs(stage, stage.foreign)).toBe(0);
  });
});

describe('a worker that reports a wait that cannot be', () => {
  const child = { kind: 'child', name: 'a', digest: '', input: {} };

  it.each([
    ['nothing', ''],
    ['an empty list', '[]'],
    ['a child twice', JSON.stringify([child, child])],
    [
      'a child twice, once with its endpoint',
      JSON.stringify([child, { ...child, endpoint: ENDPOINT }]),
    ],
    ['no list', '{}'],
  ])('ends its job: %s', async (_, body) => {
    const stage = await startStage();
    const { answer, job } = await wait(stage, body, { scopes: ['worker'] });
    expect(answer.status).toBe(200);
    expect(await job()).toMatchObject({ status: 'FAILED', error: { code: 'wait_failed' } });
    expect(await countJobs(stage, ENDPOINT)).toBe(1);
  });
});
