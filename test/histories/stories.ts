// What clients do. Each story is the life of one job or a few. The seed chooses the stories and their numbers.
import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { flowReference, flowSummary } from '../../src/wire/job/flow-records.ts';
import type { RecordingClient } from './client.ts';
import type { Answer, NewFlow, Submission } from './history.ts';

export interface Scene {
  client: RecordingClient;
  endpoint: string;
  /** A client of another user. */
  stranger: RecordingClient;
  random: () => number;
  nextTag: () => string;
  /** The URL of the receiver, for a tag. */
  webhook: (tag: string) => string;
  /** Whether the story may go on. */
  isOpen: () => boolean;
}

/** An endpoint without workers: its jobs end by their `ttl`. */
export const IDLE = 'idle';
/** The second endpoint of the owner. Jobs of this group share a limit at both. */
export const TWIN = 'twin';
export const LIMITED = 'limited';
export const SHORTEST_TTL_MS = 10_000;
const PURGED_DELAY_MS = 2_500;
const LARGE_BYTES = 300_000;

const record = z.looseObject({ id: z.string(), status: z.string() });
const batch = z.object({ jobs: z.array(z.looseObject({ id: z.string().exactOptional() })) });

export const STORIES = {
  plain,

  /** A schedule, which the last reads pause. */
  async schedule({ client, endpoint, isOpen, nextTag, random }: Scene) {
    const tag = nextTag();
    const overlaps = ['allow', 'allow', 'skip', 'replace'] as const;
    const overlap = overlaps[pick(random, overlaps.length)] ?? 'allow';
    const input = { tag: `${tag}-tick`, ms: pick(random, 25) };
    await client.schedule(endpoint, { name: tag, every: 1_000, overlap, input });
    const until = Date.now() + 2_200;
    for (; Date.now() < until && isOpen(); await sleep(700)) await client.schedules(endpoint);
  },

  /** A job that may run longer than the lease of a paused worker. */
  async slow(scene: Scene) {
    const { random } = scene;
    const ms = 300 + pick(random, 2_200);
    const body = compose(scene, random() < 0.7 ? { ms } : { ms: ms / 3, chunks: 2 });
    await follow(scene, await submit(scene, body));
  },

  async keyed(scene: Scene) {
    const { client, endpoint } = scene;
    const idempotencyKey = scene.nextTag();
    const body = { ...compose(scene), idempotencyKey };
    const submit = () => client.run(endpoint, body);
    // Submits twice at the same time, and once later.
    const [id] = await Promise.all([repeat(scene, submit).then(idOf), submit()]);
    await submit();
    await client.run(endpoint, { ...compose(scene), idempotencyKey });
    await follow(scene, id);
  },

  /** A stream that takes longer than a lease. */
  async long(scene: Scene) {
    const { client, endpoint } = scene;
    const id = await submit(scene, compose(scene, { chunks: 40, ms: 100 }));
    if (id === undefined) return;
    let after = '0';
    for (let end = 'part'; end === 'part' && scene.isOpen(); await sleep(20)) {
      const leaveAfter = Number.POSITIVE_INFINITY;
      ({ end, next: after } = await client.events(endpoint, id, { after, leaveAfter }));
    }
    await follow(scene, id);
  },

  /** A job whose input and output are too large for the database. */
  async large(scene: Scene) {
    const filler = randomBytes(LARGE_BYTES).toString('base64');
    await follow(scene, await submit(scene, compose(scene, { filler })));
  },

  async sync(scene: Scene) {
    const body = compose(scene);
    await follow(scene, idOf(await scene.client.runsync(scene.endpoint, body)));
  },

  async batch(scene: Scene) {
    const bodies = [{}, {}, { chunks: 2 }].map((more) => ({
      ...{ ...compose(scene, more), idempotencyKey: scene.nextTag() },
    }));
    const answer = await repeat(scene, () => scene.client.runJobs(scene.endpoint, bodies));
    if (answer?.status !== 200) return;
    for (const { id } of batch.parse(answer.body).jobs) await follow(scene, id);
  },

  async events(scene: Scene) {
    const { client, endpoint, random } = scene;
    const id = await submit(scene, compose(scene, { chunks: 4 + pick(random, 12) }));
    if (id === undefined) return;
    const read = async () => {
      let after = '0';
      for (let end = 'part'; end === 'part' && scene.isOpen(); ) {
        const leaveAfter =
          after === '0' || random() < 0.5 ? 2 + pick(random, 3) : Number.POSITIVE_INFINITY;
        ({ end, next: after } = await client.events(endpoint, id, { after, leaveAfter }));
        await sleep(20);
      }
    };
    await Promise.all([read(), follow(scene, id)]);
  },

  /** Reads pages after positions, or after the cursor that the platform keeps. */
  async pages(scene: Scene) {
    const { client, endpoint, random } = scene;
    const id = await submit(scene, compose(scene, { chunks: 3 + pick(random, 8) }));
    let after = random() < 0.7 ? '0' : null;
    for (let end = 'part'; id !== undefined && end === 'part' && scene.isOpen(); ) {
      const read = await client.page(endpoint, id, after);
      after &&= read.next;
      end = after === null && read.status === 'COMPLETED' ? 'done' : read.end;
      await sleep(10);
    }
    await follow(scene, id);
  },

  async cancel(scene: Scene) {
    const { client, endpoint, random } = scene;
    const body = compose(scene, random() < 0.5 ? { hangUntil: 1_000 } : { ms: 60 });
    body.webhook = scene.webhook(body.input.tag);
    // Ends the job if the load is over before the cancel.
    body.policy = { executionTimeout: 5_000 };
    const id = await submit(scene, body);
    if (id === undefined) return;
    await sleep(random() * 120);
    await repeat(scene, () => client.change('cancel', endpoint, id));
    await follow(scene, id);
  },

  async retry(scene: Scene) {
    const { client, endpoint } = scene;
    const body = compose(scene, { failUntil: 1, chunks: 2 });
    body.webhook = scene.webhook(body.input.tag);
    const id = await submit(scene, body);
    const seen = await follow(scene, id);
    if (id === undefined || seen?.status !== 'FAILED') return;
    const whole = { leaveAfter: Number.POSITIVE_INFINITY };
    const { next } = await client.events(endpoint, id, { after: '0', ...whole });
    await client.change('retry', endpoint, id);
    await client.events(endpoint, id, { after: next, ...whole });
    await follow(scene, id);
  },

  async timeout(scene: Scene) {
    const { client, endpoint } = scene;
    const body = { ...compose(scene, { hangUntil: 1 }), policy: { executionTimeout: 1_000 } };
    const id = await submit(scene, body);
    const seen = await follow(scene, id);
    if (id === undefined || seen?.status !== 'TIMED_OUT') return;
    await client.change('retry', endpoint, id);
    await follow(scene, id);
  },

  async delay(scene: Scene) {
    const delay = 400 + pick(scene.random, 600);
    const body = { ...compose(scene), policy: { delay } };
    const keyed = { ...body, idempotencyKey: scene.nextTag() };
    const answer = await repeat(scene, () => scene.client.run(scene.endpoint, keyed));
    await follow(scene, idOf(answer));
  },

  async group(scene: Scene) {
    const group = scene.nextTag();
    // Some run longer than most outages.
    const ms = scene.random() < 0.3 ? 1_200 : 20;
    const bodies = Array.from({ length: 4 }, () => {
      return { ...compose(scene, { ms }), policy: { group } };
    });
    const ids = await Promise.all(bodies.map((body) => submit(scene, body)));
    for (const id of ids) await follow(scene, id);
  },

  /** Some jobs at both endpoints of the owner, under their shared limit of running jobs. */
  async limited(scene: Scene) {
    if (scene.client.user !== 'owner') return plain(scene);
    const jobs = [scene.endpoint, TWIN, TWIN, TWIN].map(async (endpoint) => {
      const idempotencyKey = scene.nextTag();
      const body = compose(scene, { ms: 200 + pick(scene.random, 200) });
      const keyed = { ...body, policy: { group: LIMITED }, idempotencyKey };
      const answer = await repeat(scene, () => scene.client.run(endpoint, keyed));
      await follow({ ...scene, endpoint }, idOf(answer));
    });
    await Promise.all(jobs);
  },

  /** More short jobs than may start in one window. */
  async paced(scene: Scene) {
    if (scene.client.user !== 'owner') return plain(scene);
    const place = { ...scene, endpoint: TWIN };
    const bodies = Array.from({ length: 8 }, () => {
      const idempotencyKey = scene.nextTag();
      return { ...compose(scene, { ms: 1 }), policy: { group: LIMITED }, idempotencyKey };
    });
    const answer = await repeat(scene, () => scene.client.runJobs(TWIN, bodies));
    if (answer?.status !== 200) return;
    for (const { id } of batch.parse(answer.body).jobs) await follow(place, id);
  },

  /** A chain over both endpoints of the owner, a part that fails, and its children by each kind of edge. */
  async flow(scene: Scene) {
    if (scene.client.user !== 'owner') return plain(scene);
    const { client, endpoint, isOpen, nextTag } = scene;
    const part = (
      name: string,
      at: string,
      after: NewFlow['jobs'][number]['after'],
      fails = false,
    ) => {
      const input = { tag: nextTag(), ms: 20, ...(fails && { failUntil: 1_000 }) };
      return { name, endpoint: at, input, after };
    };
    const after = (job: string, onFailure: 'fail' | 'run' | 'skip' = 'fail') => ({
      job,
      onFailure,
    });
    const jobs = [
      part('first', endpoint, []),
      part('next', TWIN, [after('first')]),
      part('broken', endpoint, [after('next')], true),
      part('failed', TWIN, [after('broken')]),
      part('skipped', TWIN, [after('broken', 'skip')]),
      part('cleanup', TWIN, [after('broken', 'run'), after('next')]),
    ];
    const body = { jobs, idempotencyKey: nextTag() };
    const answer = await repeat(scene, () => client.flow(endpoint, body));
    const { id } = answer?.status === 200 ? flowReference.parse(answer.body) : {};
    for (let isOver = id === undefined; id !== undefined && !isOver && isOpen(); await sleep(100)) {
      const read = await client.flowRecord(endpoint, id);
      isOver = read?.status === 200 && flowSummary.parse(read.body).status !== 'RUNNING';
    }
  },

  async purge(scene: Scene) {
    const { client, endpoint } = scene;
    const bodies = Array.from({ length: 3 }, () => ({
      ...{ ...compose(scene), policy: { delay: PURGED_DELAY_MS } },
    }));
    const ids = await Promise.all(bodies.map((body) => submit(scene, body)));
    await client.purge(endpoint);
    for (const id of ids) if (id !== undefined) await client.status(endpoint, id);
  },

  async foreign(scene: Scene) {
    const { endpoint, stranger } = scene;
    const id = await submit(scene, compose(scene, { chunks: 2 }));
    if (id === undefined) return;
    await stranger.status(endpoint, id);
    await stranger.page(endpoint, id, '0');
    await stranger.change('cancel', endpoint, id);
    await stranger.details(endpoint, id);
    await stranger.list(endpoint);
    await follow(scene, id);
  },

  async list(scene: Scene) {
    await scene.client.list(scene.endpoint);
  },

  async ttl(scene: Scene) {
    if (scene.client.user !== 'owner') return;
    const body = { ...compose(scene), policy: { ttl: SHORTEST_TTL_MS } };
    const id = idOf(await scene.client.run(IDLE, body));
    if (id !== undefined) await scene.client.status(IDLE, id);
  },
} satisfies Record<string, (scene: Scene) => Promise<void>>;

export type StoryName = keyof typeof STORIES;

/** Each name counts: clients choose with these frequencies. A purge is rare, because it ends jobs of other stories. */
export const QUICK_STORIES: readonly StoryName[] = [
  ...(['plain', 'keyed', 'sync', 'batch', 'events', 'pages', 'cancel', 'retry'] as const),
  ...(['plain', 'keyed', 'events', 'pages', 'cancel', 'retry', 'group', 'group'] as const),
  ...(['timeout', 'delay', 'purge', 'foreign', 'list', 'slow', 'slow', 'schedule'] as const),
  ...(['limited', 'paced', 'flow'] as const),
];

async function plain(scene: Scene): Promise<void> {
  const body = compose(scene);
  if (scene.random() < 0.5) body.webhook = scene.webhook(body.input.tag);
  await follow(scene, await submit(scene, body));
}

function compose({ nextTag, random }: Scene, more: Partial<Submission['input']> = {}): Submission {
  return { input: { tag: nextTag(), ms: pick(random, 25), ...more } };
}

async function submit({ client, endpoint }: Scene, body: Submission): Promise<string | undefined> {
  return idOf(await client.run(endpoint, body));
}

function idOf(answer: Answer | null): string | undefined {
  return answer?.status === 200 ? record.parse(answer.body).id : undefined;
}

/** Repeats a call until it has an answer below 500. */
async function repeat(
  { isOpen }: Scene,
  call: () => Promise<Answer | null>,
): Promise<Answer | null> {
  for (;;) {
    const answer = await call();
    if ((answer && answer.status < 500) || !isOpen()) return answer;
    await sleep(50);
  }
}

/** Reads the status until the job has ended. */
async function follow(scene: Scene, id?: string): Promise<z.infer<typeof record> | undefined> {
  while (id !== undefined && scene.isOpen()) {
    const waitMs = scene.random() < 0.2 ? 1_000 : undefined;
    const answer = await scene.client.status(scene.endpoint, id, waitMs);
    const seen = answer?.status === 200 ? record.parse(answer.body) : undefined;
    if (seen && seen.status !== 'IN_QUEUE' && seen.status !== 'IN_PROGRESS') return seen;
    if (answer?.status === 404) return undefined;
    await sleep(30 + scene.random() * 50);
  }
  return undefined;
}

function pick(random: () => number, below: number): number {
  return Math.floor(random() * below);
}
